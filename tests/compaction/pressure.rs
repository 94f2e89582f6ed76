//! A reservation beside a compaction that does not get on.

use std::sync::mpsc::channel;
use std::time::Duration;

use dacapo::DeviceOptions;
use dacapo::host::HostOptions;
use dacapo::prelude::*;

use crate::support::{LEN, filled};
use crate::{PAGE, PAGE_BYTES, verify};

/// While a page is emptied it takes no tenant, and looked full to whoever ran out of memory meanwhile.
#[test]
fn a_reservation_waits_for_what_another_thread_moves_together() {
    let host = HostOptions::new().in_flight(1);
    let options = DeviceOptions::new().max_streams(2).memory_limit(2 * PAGE_BYTES).backend(host);
    let device = Device::open(options).unwrap();
    let [mut stream, mut other] = [0; 2].map(|_| device.stream().unwrap());
    // Room for two buffers on the page of the one slot, but not side by side; and one on that of the other, which fits.
    let mut full: Vec<_> = (0..PAGE).map(|i| (i as f32, filled(&mut stream, i as f32))).collect();
    drop((full.remove(11), full.remove(7)));
    let mut single = filled(&mut other, 99.0);
    stream.memory_cleanup().unwrap();
    // The queue that the moves go through is full until the gate opens.
    let (open, gate) = channel::<()>();
    let (entered, enter) = channel();
    let call = move || {
        entered.send(()).unwrap();
        gate.recv().unwrap();
    };
    other.host_call(call).unwrap();
    enter.recv().unwrap();
    other.fill(&mut single, 98.0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| stream.compact().unwrap());
        // For the other thread to get as far as the full queue, and for this one to get there too.
        const A_WHILE: Duration = Duration::from_millis(50);
        std::thread::sleep(A_WHILE);
        scope.spawn(move || {
            std::thread::sleep(A_WHILE);
            open.send(()).unwrap();
        });
        drop(other.alloc_scratch::<f32>(2 * LEN).unwrap());
    });
    verify(&mut stream, &full);
    verify(&mut other, &[(98.0, single)]);
}
