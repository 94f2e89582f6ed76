//! Streams in use: what is in flight, and how much of it.

use std::time::Duration;

use dacapo::Error;

use super::support::*;
use super::zoo;

#[test]
fn a_read_on_another_stream_waits_for_the_write() {
    let Some(device) = device(4) else { return };
    let spin = zoo::spin().load(&device).unwrap();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u32>(256).unwrap();
    for n in 1..=50u32 {
        a.launch(&spin, Grid::covering(256), (&mut x, 200_000, Len)).unwrap();
        assert_eq!(b.read(&x).unwrap(), [n; 256]);
    }
}

/// Readers that waited for readers would make every shared table a queue.
#[test]
fn what_shares_no_bytes_waits_for_nobody() {
    let Some((device, k)) = working(4) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (written(&mut a, &ramp(100)), written(&mut b, &ramp(100)));
    let gate = Gate::close(&mut a);
    a.launch(&k.inc, Grid::covering(100), (&mut x, Len)).unwrap();
    b.launch(&k.inc, Grid::covering(100), (&mut y, Len)).unwrap();
    let expected: Vec<f32> = ramp(100).iter().map(|x| x + 1.0).collect();
    assert_eq!(b.read(&y).unwrap(), expected);
    let read = b.read_async(&x).unwrap();
    let error = a.read_timeout(&x, Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    gate.open();
    assert_eq!(block_on(read).unwrap(), expected);
}

/// Whoever waits for one operation may be the one who lets the next one go on.
#[test]
fn a_wait_ends_with_its_own_operation_though_what_follows_hangs() {
    let Some((device, k)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(10).unwrap();
    let (mut graph, ()) = stream.record(|w| w.launch(&k.inc, Grid::covering(10), (&mut x, Len))).unwrap();
    let ticket = graph.replay(&mut stream).unwrap();
    let gate = Gate::close(&mut stream);
    ticket.wait().unwrap();
    let mut other = device.stream().unwrap();
    let ticket = graph.replay(&mut other).unwrap();
    // Waits for the stream that hangs.
    other.host_call_with(Touches::new().writes(&mut x), || ()).unwrap();
    ticket.wait().unwrap();
    gate.open();
    stream.sync().unwrap();
}

#[test]
fn buffers_dropped_in_flight_keep_their_bytes_until_they_were_read() {
    let Some((device, k)) = working(4) else { return };
    let mut streams: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    for round in 0..60 {
        let (from, to) = (round % 3, (round + 1) % 3);
        let x = written(&mut streams[from], &ramp(5000));
        let mut y = streams[to].alloc_scratch::<f32>(5000).unwrap();
        streams[to].launch(&k.add1, Grid::covering(5000), (&x, &mut y, Len, Len)).unwrap();
        let read = streams[from].read_async(&y).unwrap();
        drop((x, y));
        // The next owner of the bytes.
        let z = written(&mut streams[from], &vec![-1.0; 5000]);
        assert_eq!(block_on(read).unwrap(), ramp(5000).iter().map(|x| x + 1.0).collect::<Vec<_>>());
        drop(z);
    }
}

/// A future that is dropped leaves the device writing to memory that is somebody else's.
#[test]
fn futures_dropped_in_flight_leave_nothing_behind() {
    let Some((device, _)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(100_000));
    for _ in 0..50 {
        let gate = Gate::close(&mut stream);
        drop(stream.read_async(&x).unwrap());
        assert!(stream.read_timeout(&x, Duration::from_micros(50)).is_err());
        gate.open();
        assert_eq!(stream.read(&x).unwrap(), ramp(100_000));
    }
}

#[test]
fn more_work_than_a_slot_holds_waits_for_room_and_is_all_done() {
    let Some((device, k)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<f32>(64).unwrap();
    (0..20_000).for_each(|_| stream.launch(&k.inc, Grid::covering(64), (&mut x, Len)).unwrap());
    assert_eq!(stream.read(&x).unwrap(), [20_000.0; 64]);
    for n in 0..2000 {
        stream.write(&mut x, &[n as f32; 64]).unwrap();
    }
    assert_eq!(stream.read(&x).unwrap(), [1999.0; 64]);
}

#[test]
fn host_callbacks_run_in_their_turn_and_may_call_nothing() {
    let Some(device) = device(4) else { return };
    let spin = zoo::spin().load(&device).unwrap();
    let mut stream = device.stream().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut x = stream.alloc::<u32>(1).unwrap();
    let inner = device.clone();
    for n in 0..20 {
        let (sender, inner) = (sender.clone(), inner.clone());
        stream.launch(&spin, Grid::covering(1), (&mut x, 10_000, Len)).unwrap();
        stream
            .host_call(move || {
                let refused = matches!(inner.stream(), Err(Error::InCallback { .. }));
                sender.send((n, refused)).unwrap();
            })
            .unwrap();
    }
    stream.sync().unwrap();
    let calls: Vec<_> = receiver.try_iter().collect();
    assert_eq!(calls, (0..20).map(|n| (n, true)).collect::<Vec<_>>());
}

/// A foreign context that was current is what its library still expects to be.
#[test]
fn threads_that_never_met_the_driver_share_one_device() {
    let Some((device, k)) = working(4) else { return };
    std::thread::scope(|scope| {
        for n in 0..8u32 {
            let (device, k) = (&device, &k);
            scope.spawn(move || {
                let mut stream = device.stream().unwrap();
                let mut x = stream.alloc::<f32>(1000).unwrap();
                (0..100 + n)
                    .for_each(|_| stream.launch(&k.inc, Grid::covering(1000), (&mut x, Len)).unwrap());
                assert_eq!(stream.read(&x).unwrap(), [(100 + n) as f32; 1000]);
            });
        }
    });
    assert!(eventually(|| device.memory_usage().in_use == 0));
}
