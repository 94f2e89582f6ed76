//! Cases MEM-01 and MEM-02, and OBJ-05: memory that must not grow.

use super::kernels::{self, Join};
use super::subject::calls_of;
use super::support::*;
use super::{assert_returns_to, baseline, zoo};
use dacapo::{Call, Error};

const BYTES: usize = LARGE * 4;

fn join(device: &Device) -> Kernel<Join> {
    kernels::join().load(device).unwrap()
}

/// Two temporaries of `len` elements that are alive at once, and an output that the caller keeps.
fn pass(
    w: &mut impl Enqueue<Subject>,
    k: &Kernel<Join>,
    x: &Buffer<u32>,
    len: usize,
) -> dacapo::Result<Buffer<u32>> {
    let x = x.slice(..len)?;
    let (mut a, mut b) = (w.alloc_scratch::<u32>(len)?, w.alloc_scratch::<u32>(len)?);
    let mut out = w.alloc_scratch::<u32>(len)?;
    w.copy(x, &mut a)?;
    w.copy(x, &mut b)?;
    w.launch(k, Grid::covering(len), (&a, &b, &mut out, Len, Len, Len))?;
    Ok(out)
}

/// The last two elements that `pass` gives over an `x` that holds `value` everywhere.
fn passed(value: u32) -> [u32; 2] {
    [value, 2 * value]
}

fn tail(s: &mut Stream, out: &Buffer<u32>) -> Vec<u32> {
    s.read(out.slice(out.len() - 2..).unwrap()).unwrap()
}

/// An input of `LARGE` elements that hold `value`.
fn input(s: &mut Stream, value: u32) -> Buffer<u32> {
    let mut x = s.alloc_scratch::<u32>(LARGE).unwrap();
    s.write(&mut x, vec![value; LARGE]).unwrap();
    x
}

/// Graph memory that is never freed, or three sets of it a cycle, shows only after hours.
#[test]
fn mem_01_capture_replay_and_drop_for_ever_is_flat_and_its_peak_bounded() {
    let Some(device) = device(1) else { return };
    let k = join(&device);
    let mut s = device.stream().unwrap();
    let x = input(&mut s, 1);
    let before = baseline(&mut s);
    let one_pass = 3 * BYTES;
    let (mut peaks, mut rests, mut allocations) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..100 {
        let before_round = calls_of(&device, Call::Allocate);
        let mut prepared = s.prepare().unwrap();
        for _ in 0..3 {
            drop(pass(&mut prepared, &k, &x, LARGE).unwrap());
        }
        let mut recording = prepared.begin().unwrap();
        let out = pass(&mut recording, &k, &x, LARGE).unwrap();
        let (mut graph, idle) = recording.end().unwrap();
        s = idle;
        assert!(graph.arena_bytes() <= 2 * BYTES, "the graph keeps what the recorded pass used, and no more");
        graph.replay(&mut s).unwrap();
        graph.replay(&mut s).unwrap();
        assert_eq!(tail(&mut s, &out), passed(1));
        peaks.push(device.memory_usage().held - before.held);
        drop((graph, out));
        s.sync().unwrap();
        // Nobody cleans up: what the graph alone used goes back by itself, and the pool keeps one set for the next pass.
        let pending = || device.memory_usage().pending;
        assert!(eventually(|| pending() == 0), "{} bytes never went back", pending());
        rests.push(device.memory_usage().held - before.held);
        allocations
            .push(calls_of(&device, Call::Allocate).zip(before_round).map(|(now, before)| now - before));
        assert_eq!(device.memory_usage().in_use, before.in_use);
    }
    // One set in the pool for the warm-up, one for the graph: as `Stream::capture` says.
    assert!(peaks[0] <= 2 * one_pass, "{} bytes for passes of {one_pass}", peaks[0]);
    assert!(peaks[2..].iter().all(|peak| *peak == peaks[1] && *peak <= peaks[0]), "{peaks:?}");
    assert!(rests[2..].iter().all(|rest| *rest == rests[1] && *rest <= one_pass), "{rests:?}");
    assert!(allocations[2..].iter().all(|count| *count == allocations[1]), "{allocations:?}");
    assert_returns_to(&mut s, before);
}

/// A pool for each of a program's short-lived streams grows every one of them to its own peak.
#[test]
fn mem_02_short_lived_streams_share_the_memory_of_their_slots() {
    const SLOTS: usize = 2;
    // 8 MiB.
    let len = 8 * LARGE;
    let Some(device) = device(SLOTS) else { return };
    let set = zoo::fill::<u32>().load(&device).unwrap();
    let asked_before = calls_of(&device, Call::Allocate);
    for value in 0..64u32 {
        let (on, set) = (device.clone(), set.clone());
        let short_lived = std::thread::spawn(move || {
            let mut s = on.stream().unwrap();
            let mut b = s.alloc_scratch::<u32>(len).unwrap();
            s.launch(&set, Grid::covering(len), (&mut b, value, Len)).unwrap();
            s.read(b.slice(len - 1..).unwrap()).unwrap()
        });
        assert_eq!(short_lived.join().unwrap(), [value]);
        let usage = device.memory_usage();
        assert!(usage.held <= SLOTS * len * 4, "thread {value}: {usage:?}");
        assert_eq!(usage.in_use, 0, "thread {value}");
    }
    assert_eq!(
        calls_of(&device, Call::Allocate),
        asked_before.map(|before| before + SLOTS as u64),
        "neighbours take over what a stream leaves"
    );
}

/// Graphs that leave their stream keep their own memory alive, not the pool of the stream that made them.
#[test]
fn mem_02_a_graph_that_left_its_thread_pins_only_its_own_set() {
    const THREADS: usize = 64;
    let Some(device) = device(2) else { return };
    let k = join(&device);
    let mut home = device.stream().unwrap();
    let x = input(&mut home, 5);
    let before = baseline(&mut home);
    let mut graphs = Vec::new();
    for made in 0..THREADS {
        // Threads that are gone leave one set for each slot, that of the warm-up, and the graphs theirs; of a shared page
        // that grew with the demand, a part is free.
        let held = device.memory_usage().held - before.held;
        assert!(held <= (made + 2) * 3 * BYTES * 5 / 4, "{held} bytes for {made} graphs");
        let made = std::thread::scope(|threads| {
            let capture = threads.spawn(|| {
                let mut s = device.stream().unwrap();
                let made = s.capture(|w| pass(w, &k, &x, LARGE)).unwrap();
                s.sync().unwrap();
                made
            });
            capture.join().unwrap()
        });
        graphs.push(made);
    }
    home.memory_cleanup().unwrap();
    // Each graph: an arena of two temporaries, and the output that its user holds.
    let own = THREADS * 3 * BYTES;
    assert_eq!(device.memory_usage().in_use - before.in_use, own);
    let held = device.memory_usage().held - before.held;
    assert!((own..=own * 5 / 4).contains(&held), "{held} bytes held, {own} of them the graphs' own");
    for (graph, out) in &mut graphs {
        graph.replay(&mut home).unwrap();
        assert_eq!(tail(&mut home, out), passed(5));
    }
    drop(graphs);
    assert_returns_to(&mut home, before);
}

/// A device that has room for one graph and a half.
fn tight() -> Option<Device> {
    open(DeviceOptions::new().max_streams(1).memory_limit(BYTES + 3 * BYTES * 3 / 2))
}

/// Replacing a graph by one of another shape must not need room for what the old one no longer uses, nor for what its
/// own warm-up no longer does.
#[test]
fn obj_05_dropping_before_capturing_always_finds_room() {
    let Some(device) = tight() else { return };
    let k = join(&device);
    let mut s = device.stream().unwrap();
    let x = input(&mut s, 1);
    let before = baseline(&mut s);
    let mut last = None;
    for round in 0..200 {
        drop(last.take());
        let len = LARGE - (round * 7919) % (LARGE / 2);
        let step = |w: &mut Work<'_>| pass(w, &k, &x, len);
        let (mut graph, out) = if round % 2 == 0 { s.capture(step) } else { s.record(step) }.unwrap();
        graph.replay(&mut s).unwrap();
        assert_eq!(tail(&mut s, &out), passed(1), "round {round}");
        last = Some((graph, out));
    }
    drop(last);
    assert_returns_to(&mut s, before);
}

/// Capturing the replacement first may fail for want of memory, and must then leave the old graph as it was.
#[test]
fn obj_05_capturing_before_dropping_is_out_of_memory_with_the_old_graph_usable() {
    let Some(device) = tight() else { return };
    let k = join(&device);
    let mut s = device.stream().unwrap();
    let mut x = input(&mut s, 1);
    let (mut old, out) = s.record(|w| pass(w, &k, &x, LARGE)).unwrap();
    let mut refusals = 0;
    for round in 0..200u32 {
        let len = if round % 2 == 0 { LARGE } else { LARGE / 4 };
        match s.record(|w| pass(w, &k, &x, len)) {
            Ok((mut graph, new)) => {
                graph.replay(&mut s).unwrap();
                s.sync().unwrap();
                drop((graph, new));
            }
            Err(Error::OutOfMemory { requested, limit, .. }) => {
                assert!(requested >= len * 4);
                assert_eq!(limit, Some(BYTES + 3 * BYTES * 3 / 2));
                refusals += 1;
            }
            Err(other) => panic!("{other}"),
        }
        s.write(&mut x, vec![round; LARGE]).unwrap();
        old.replay(&mut s).unwrap();
        assert_eq!(tail(&mut s, &out), passed(round));
    }
    assert_eq!(refusals, 100, "a whole second set does not fit, a quarter of one does");
}
