//! The pinned pool: warm, exhausted, full of other sizes.

use super::subject::calls_of;
use super::support::*;
use dacapo::{Call, Error, Layout};

fn with_pool(bytes: usize) -> Option<(Device, Stream)> {
    let device = open(DeviceOptions::new().max_streams(1).staging_limit(bytes))?;
    let stream = device.stream().unwrap();
    Some((device, stream))
}

fn round_trip(s: &mut Stream, len: usize) {
    let data: Vec<u32> = (0..len as u32).map(|n| n ^ 0x5A5A).collect();
    let mut x = s.alloc::<u32>(len).unwrap();
    s.write(&mut x, &data).unwrap();
    assert!(s.read(&x).unwrap() == data, "{len} elements");
}

fn pins(device: &Device) -> Option<u64> {
    calls_of(device, Call::Pin)
}

/// What is pinned, and how many transfers found none.
fn staging(device: &Device) -> (usize, u64) {
    let staging = device.memory_report().staging;
    (staging.held, staging.fallbacks)
}

/// Pinning costs tens of microseconds, and must happen once.
#[test]
fn a_warm_stream_pins_nothing_more() {
    let Some((device, mut s)) = with_pool(1 << 20) else { return };
    round_trip(&mut s, 1000);
    assert!(pins(&device).is_none_or(|pins| (1..=2).contains(&pins)));
    assert!((4 << 10..=8 << 10).contains(&staging(&device).0));
    for len in [1, 1000, 513, 900] {
        round_trip(&mut s, len);
    }
    assert!(pins(&device).is_none_or(|pins| pins <= 4), "one or two for each of the two classes");
    assert!(staging(&device).0 <= 2 * (5 << 10));
}

/// Staging that ran out was an error, or an unwrap of nothing.
#[test]
fn wgpu_08_an_exhausted_pool_falls_back_to_the_heap() {
    let options = DeviceOptions::new().max_streams(1).staging_limit(4 << 10).pending_limit(1000, 1 << 30);
    let Some(device) = open(options) else { return };
    let mut s = device.stream().unwrap();
    let mut x: Vec<_> = (0..20).map(|_| s.alloc::<u32>(N).unwrap()).collect();
    s.sync().unwrap();
    let gate = Gate::close(&mut s);
    for (n, x) in x.iter_mut().enumerate() {
        s.write(&mut *x, &[n as u32; N]).unwrap();
    }
    let futures: Vec<_> = x.iter().map(|x| s.read_async(x).unwrap()).collect();
    assert_eq!(pins(&device).unwrap_or(4), 4);
    assert_eq!(staging(&device), (4 << 10, 16 + 20));
    gate.open();
    for (n, future) in futures.into_iter().enumerate() {
        assert_eq!(block_on(future).unwrap(), [n as u32; N]);
    }
}

#[test]
fn transfers_larger_than_the_pool_and_pools_of_nothing_use_the_heap() {
    let Some((device, mut s)) = with_pool(4 << 10) else { return };
    round_trip(&mut s, 1025);
    round_trip(&mut s, 100_000);
    round_trip(&mut s, 5_000_000);
    assert_eq!(staging(&device), (0, 6));
    assert_eq!(pins(&device).unwrap_or(0), 0);
    round_trip(&mut s, 1024);
    assert_eq!(staging(&device).0, 4 << 10);
    assert_eq!(pins(&device).unwrap_or(1), 1);
    let Some((device, mut s)) = with_pool(0) else { return };
    round_trip(&mut s, 1);
    assert_eq!(staging(&device), (0, 2));
    assert_eq!(pins(&device).unwrap_or(0), 0);
}

/// A driver that copies from memory that is not pinned while its caller waits, and keeps the slot's lock meanwhile: who was
/// to let the stream go may be waiting for that lock.
#[test]
fn transfers_without_pinned_memory_return_while_the_stream_is_held_up() {
    /// The outcome of what is asked for behind a gate, and must not wait for it.
    fn held_up<T>(s: &mut Stream, ask: impl FnOnce(&mut Stream) -> T) -> T {
        s.sync().unwrap();
        let gate = Gate::close(s);
        let asked = ask(s);
        gate.open();
        asked
    }
    let Some((_device, mut s)) = with_pool(0) else { return };
    let s = &mut s;
    for len in [1, 1 << 10, (16 << 10) + 1, 300_000, 3 << 20] {
        let layout = Layout::pitched(&[2, len], len + 1).unwrap();
        let data: Vec<u32> = (0..2 * len as u32).collect();
        let (mut lent, mut owned) = (s.alloc::<u32>(2 * len).unwrap(), s.alloc::<u32>(2 * len).unwrap());
        let mut rows = s.alloc::<u32>(2 * len + 1).unwrap();
        held_up(s, |s| s.write(&mut lent, &data)).unwrap();
        held_up(s, |s| s.write(&mut owned, data.clone())).unwrap();
        held_up(s, |s| s.write_pitched(&mut rows, &layout, data.clone())).unwrap();
        let read = held_up(s, |s| s.read_async(&lent)).unwrap();
        assert!(block_on(read).unwrap() == data, "{len} elements, lent");
        let late = refused(held_up(s, |s| s.read_timeout(&owned, SHORT)));
        assert!(matches!(late, Error::Timeout { .. }), "{late}");
        assert!(s.read(&owned).unwrap() == data, "{len} elements, handed over");
        let late = refused(held_up(s, |s| s.read_pitched_timeout(&rows, &layout, SHORT)));
        assert!(matches!(late, Error::Timeout { .. }), "{late}");
        assert!(s.read_pitched(&rows, &layout).unwrap() == data, "{len} elements, in rows");
    }
}

/// Many of them at once, which no stream takes: they must get through all the same, and each with its own bytes.
#[test]
fn any_number_of_transfers_without_pinned_memory_gets_through() {
    let options = DeviceOptions::new().max_streams(2).staging_limit(0).pending_limit(1000, 1 << 30);
    let Some(device) = open(options) else { return };
    let (mut s, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    for (count, len) in [(1000u32, 500), (200, 20_000), (8, 3_000_000)] {
        let of = |n: u32| (0..len as u32).map(|at| n.wrapping_mul(0x9E37_79B9) ^ at).collect::<Vec<u32>>();
        let mut buffers: Vec<_> = (0..count).map(|_| s.alloc_scratch::<u32>(len).unwrap()).collect();
        let reads = (0..count).zip(&mut buffers).map(|(n, buffer)| {
            let (writer, reader) = if n % 2 == 0 { (&mut s, &mut other) } else { (&mut other, &mut s) };
            writer.write(&mut *buffer, of(n)).unwrap();
            reader.read_async(&*buffer).unwrap()
        });
        for (n, read) in reads.collect::<Vec<_>>().into_iter().enumerate() {
            assert!(block_on(read).unwrap() == of(n as u32), "{n} of {count}");
        }
    }
}

/// What is pinned and what is in flight is where an operator looks first when the machine runs out of memory.
#[test]
fn the_report_tells_what_is_pinned_and_what_is_in_flight() {
    let Some((device, mut s)) = with_pool(4 << 10) else { return };
    let mut x = s.alloc::<u8>(4096).unwrap();
    s.sync().unwrap();
    let gate = Gate::close(&mut s);
    s.write(x.slice_mut(..2000).unwrap(), &[1; 2000]).unwrap();
    s.write(&mut x, &[2; 4096]).unwrap();
    s.write(x.slice_mut(..3).unwrap(), vec![3; 3]).unwrap();
    let report = device.memory_report();
    assert_eq!((report.pending.transfers, report.pending.host_bytes), (3, 2048 + 4096 + 3));
    assert_eq!((report.staging.held, report.staging.in_use, report.staging.fallbacks), (2048, 2048, 1));
    let text = report.to_string();
    assert!(text.contains("2.0 KiB  pinned, 2.0 KiB of it in use; 1 transfers without"), "{text}");
    gate.open();
    s.sync().unwrap();
    let report = device.memory_report();
    assert_eq!((report.pending.transfers, report.pending.host_bytes), (0, 0));
    assert_eq!((report.staging.held, report.staging.in_use), (2048, 0));
    s.memory_cleanup().unwrap();
    assert_eq!(device.memory_report().staging.held, 0);
    assert_eq!(s.read(x.slice(..4).unwrap()).unwrap(), [3, 3, 3, 2]);
}

/// Blocks of a size that is not used any more would fill the pool for ever.
#[test]
fn blocks_of_other_sizes_make_room_and_a_cleanup_gives_all_of_them_back() {
    let Some((device, mut s)) = with_pool(8 << 10) else { return };
    round_trip(&mut s, 1024);
    round_trip(&mut s, 1024);
    s.sync().unwrap();
    let (before, (_, without)) = (pins(&device), staging(&device));
    let mut x = s.alloc::<u32>(2048).unwrap();
    s.write(&mut x, &[1; 2048]).unwrap();
    assert!(pins(&device) > before || before.is_none(), "the pool was full of smaller blocks");
    assert_eq!(staging(&device), (8 << 10, without), "it did not have to do without");
    s.sync().unwrap();
    s.memory_cleanup().unwrap();
    assert_eq!(staging(&device).0, 0, "a cleanup leaves the pool empty");
    let before = pins(&device);
    round_trip(&mut s, 2048);
    assert!(pins(&device) > before || before.is_none());
}

/// A block that served before holds somebody's bytes: a read that lands in less of it must not show them.
#[test]
fn no_read_shows_what_a_block_held_before() {
    let Some((device, mut s)) = with_pool(1 << 10) else { return };
    let mut secret = s.alloc::<u8>(1024).unwrap();
    s.write(&mut secret, &[0xEE; 1024]).unwrap();
    s.sync().unwrap();
    let small = s.alloc::<u8>(3).unwrap();
    assert_eq!(s.read(&small).unwrap(), [0; 3]);
    let mut into = [0x11; 3];
    s.read_into(&small, &mut into).unwrap();
    assert_eq!(into, [0; 3]);
    assert_eq!(staging(&device), (1 << 10, 0), "all of it went through one block");
}
