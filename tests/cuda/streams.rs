//! How long the device takes.

use std::time::Duration;

use dacapo::prelude::*;

#[test]
fn profiled_time_is_that_of_the_device() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(1).unwrap();
    let mut spin = |cycles: u64| {
        let profile = stream.profile(|work| work.launch(&k.spin, Grid::covering(1), (&mut x, Len, cycles)));
        profile.unwrap().1.device
    };
    spin(1000);
    // At 2 GHz, 10 ms; no clock of a GPU is ten times as fast.
    let (short, long) = (spin(1000), spin(20_000_000));
    assert!(long > Duration::from_millis(1) && long > short, "{short:?}, {long:?}");
}
