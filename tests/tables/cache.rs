//! What is uploaded how often, and what is kept.

use std::sync::Arc;

use dacapo::prelude::*;

use crate::support::stepped;
use crate::{N, table};

/// A cache whose entries kept their device alive would be a device that never ends.
#[test]
fn tables_do_not_keep_their_device() {
    let kept = Arc::new(());
    let (device, _stepper, _) = stepped(1);
    let mut stream = device.stream().unwrap();
    let here = kept.clone();
    let program = Program::<(Uniform<u32>, Out<u32>)>::new("keep").host(move |_, _| drop(here.clone()));
    let keep = program.load(&device).unwrap();
    let mut out = stream.alloc_scratch::<u32>(N).unwrap();
    stream.launch(&keep, Grid::covering(N), (&table(1), &mut out)).unwrap();
    // The launch stays queued, and goes with its queue when the device does.
    drop((program, keep, out, stream));
    assert_eq!(Arc::strong_count(&kept), 2);
    drop(device);
    drop(_stepper);
    assert_eq!(Arc::strong_count(&kept), 1);
}
