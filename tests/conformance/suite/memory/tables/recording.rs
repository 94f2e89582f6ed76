//! Tables of a window: nothing is sent while it records, and nothing again by its replays.

use dacapo::Call;

use super::support::*;
use super::{N, launch, plus, repeated, spread, spread_of, table, try_launch, uploads};

/// An upload in the window would be work that executes while nothing may; one in the graph would be made by every replay.
#[test]
fn a_cold_table_is_uploaded_at_the_end_and_never_by_a_replay() {
    let Some(device) = device(1) else { return };
    let (stream, k, start) = (device.stream().unwrap(), spread(&device), uploads(&device));
    let mut recording = stream.prepare().unwrap().begin().unwrap();
    let outs: Vec<_> = (0..10).map(|_| recording.alloc_scratch::<u32>(N).unwrap()).collect();
    let mut outs = outs;
    let before = subject::driver_calls(&device);
    for (n, out) in (0u32..).zip(&mut outs) {
        launch(&mut recording, &k, &table(n % 7), out);
    }
    assert_eq!(subject::driver_calls(&device), before, "recording asks nothing of the driver");
    let (mut graph, mut stream) = recording.end().unwrap();
    assert_eq!(uploads(&device), plus(start, 1), "one for all");
    assert_eq!(graph.nodes(), 10, "and none in the graph");
    for _ in 0..3 {
        outs.iter_mut().for_each(|out| stream.fill(out, 0).unwrap());
        graph.replay(&mut stream).unwrap();
        for (n, out) in (0u32..).zip(&outs) {
            assert_eq!(stream.read(out).unwrap(), repeated(&table(n % 7)));
        }
    }
    assert_eq!(uploads(&device), plus(start, 1));
}

/// The warm-up brings what the recording needs, so that `end` has nothing to upload.
#[test]
fn a_recording_finds_what_its_warm_up_used() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut outs: Vec<_> = (0..1000).map(|_| stream.alloc_scratch::<u32>(N).unwrap()).collect();
    // More than the usual cache holds, and larger than it takes.
    let large = |n: u32| (n..n + 1030).collect::<Vec<u32>>();
    let (mut passes, start) = (Vec::new(), uploads(&device));
    let (mut graph, ()) = stream
        .capture(|work| {
            for (n, out) in (0u32..).zip(&mut outs) {
                launch(work, &k, &if n < 20 { large(n) } else { table(n).to_vec() }, out);
            }
            passes.push(uploads(&work.device_handle()));
            Ok(())
        })
        .unwrap();
    assert_eq!(passes, [plus(start, 1000); 2]);
    assert_eq!(uploads(&device), plus(start, 1000), "nothing was left for the end");
    outs.iter_mut().for_each(|out| stream.fill(out, 0).unwrap());
    graph.replay(&mut stream).unwrap();
    for (n, out) in (0u32..).zip(&outs) {
        let expected = if n < 20 { repeated(&large(n)) } else { repeated(&table(n)) };
        assert_eq!(stream.read(out).unwrap(), expected, "launch {n}");
    }
}

/// A measurement inside the warm-up is a part of it.
#[test]
fn a_profiled_part_of_a_warm_up_keeps_its_tables_too() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc_scratch::<u32>(N).unwrap();
    let (large, start) = (vec![4u32; 5000], uploads(&device));
    let mut prepared = stream.prepare().unwrap();
    prepared.profile(|work| try_launch(work, &k, &large, &mut out)).unwrap();
    let mut recording = prepared.begin().unwrap();
    launch(&mut recording, &k, &large, &mut out);
    let (mut graph, mut stream) = recording.end().unwrap();
    assert_eq!(uploads(&device), plus(start, 1));
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [4; N]);
}

/// A window whose neighbours share its slot: each finds its own tables, and theirs.
#[test]
fn windows_of_one_slot_do_not_mix_their_tables() {
    let Some(device) = device(1) else { return };
    let k = spread(&device);
    let mut idle = device.stream().unwrap();
    let mut outs: Vec<_> = (0..40).map(|_| idle.alloc_scratch::<u32>(N).unwrap()).collect();
    let mut windows: Vec<_> =
        (0..4).map(|_| device.stream().unwrap().prepare().unwrap().begin().unwrap()).collect();
    for (n, out) in (0u32..).zip(&mut outs) {
        launch(&mut windows[n as usize % 4], &k, &table(n / 2), &mut *out);
        launch(&mut idle, &k, &table(n), &mut *out);
    }
    let mut graphs: Vec<_> = windows.drain(..).map(|window| window.end().unwrap()).collect();
    for (graph, stream) in &mut graphs {
        graph.replay(stream).unwrap();
    }
    for (n, out) in (0u32..).zip(&outs) {
        assert_eq!(idle.read(out).unwrap(), repeated(&table(n / 2)));
    }
}

/// A replay on a slot of its own, before the constants got there.
#[test]
fn a_replay_on_another_slot_waits_for_the_upload() {
    beside_gates(subject::ATTEMPTS, || {
        let Some(device) = device(2) else { return };
        let k = spread(&device);
        let (mut one, mut other) = (device.stream().unwrap(), device.stream().unwrap());
        let mut out = other.alloc_scratch::<u32>(N).unwrap();
        for warm in [false, true] {
            let tables = [table(3), table(4)];
            let step = |work: &mut Work<'_>| {
                tables.iter().for_each(|table| launch(work, &k, table, &mut out));
                Ok(())
            };
            let gate = Gate::close(&mut one);
            let recorded = if warm { one.capture(step) } else { one.record(step) };
            let (mut graph, ()) = recorded.unwrap();
            graph.replay(&mut other).unwrap();
            assert!(is_held_up(&mut other), "the replay waits for the upload");
            gate.open();
            assert_eq!(other.read(&out).unwrap(), repeated(&table(4)));
        }
    });
}

/// A queue that is full would make `end` wait for work that may be waiting for this thread.
#[test]
fn the_upload_of_the_end_does_not_wait_for_room() {
    beside_gates(subject::ATTEMPTS, || {
        let options = subject::in_flight(DeviceOptions::new().max_streams(1), subject::LEAST_IN_FLIGHT);
        let Some(device) = open(options) else { return };
        let (mut stream, k) = (device.stream().unwrap(), spread(&device));
        let mut out = stream.alloc_scratch::<u32>(N).unwrap();
        let mut recording = device.stream().unwrap().prepare().unwrap().begin().unwrap();
        launch(&mut recording, &k, &table(1), &mut out);
        let gate = Gate::close(&mut stream);
        (1..subject::LEAST_IN_FLIGHT as u32).for_each(|n| stream.fill(&mut out, n).unwrap());
        let (mut graph, mut other) = recording.end().unwrap();
        gate.open();
        graph.replay(&mut other).unwrap();
        assert_eq!(stream.read(&out).unwrap(), repeated(&table(1)));
    });
}

/// A parent that knew a child's tables by the child's numbers, or lost them with it.
#[test]
fn an_embedded_graph_brings_its_tables() {
    let Some(device) = device(2) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut parent_stream = device.stream().unwrap();
    let (mut x, mut y, mut z) =
        (stream.alloc::<u32>(N).unwrap(), stream.alloc::<u32>(N).unwrap(), stream.alloc::<u32>(N).unwrap());
    let baseline = Baseline::take(&mut stream);
    launch(&mut stream, &k, &table(1), &mut x);
    let (mut child, ()) = stream
        .record(|work| {
            launch(work, &k, &table(1), &mut x);
            launch(work, &k, &table(2), &mut y);
            Ok(())
        })
        .unwrap();
    let (mut parent, ()) = parent_stream
        .record(|work| {
            launch(work, &k, &table(3), &mut z);
            work.embed(&mut child)
        })
        .unwrap();
    drop(child);
    stream.memory_cleanup().unwrap();
    (0..200).for_each(|n| drop(spread_of(&mut stream, &k, &table(1000 + n))));
    for buffer in [&mut x, &mut y, &mut z] {
        stream.fill(buffer, 0).unwrap();
    }
    parent.replay(&mut parent_stream).unwrap();
    for (n, buffer) in (1..).zip([&x, &y, &z]) {
        assert_eq!(stream.read(buffer).unwrap(), repeated(&table(n)));
    }
    drop(parent);
    parent_stream.sync().unwrap();
    assert!(baseline.returns(&mut stream));
}

fn large_window(launches: u32) {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let part = |n: u32| n as usize * N..(n as usize + 1) * N;
    let mut out = stream.alloc_scratch::<u32>(launches as usize * N).unwrap();
    let baseline = Baseline::take(&mut stream);
    for round in 0..2 {
        let mut recording = stream.prepare().unwrap().begin().unwrap();
        let before = subject::driver_calls(&device);
        for n in 0..launches {
            launch(&mut recording, &k, &table(n + round), out.slice_mut(part(n)).unwrap());
        }
        assert_eq!(subject::driver_calls(&device), before, "no flush and no wait in the window");
        let memory = || [Call::Allocate, Call::Pin].map(|call| subject::calls_of(&device, call).unwrap_or(0));
        let before_memory: u64 = memory().iter().sum();
        let mut graph;
        (graph, stream) = recording.end().unwrap();
        // The end, the upload and the sealing; and the memory for what is uploaded, there and on the way.
        let pages = memory().iter().sum::<u64>() - before_memory;
        assert_eq!(subject::driver_calls(&device), plus(before, 3 + pages));
        assert!(pages <= 2, "{pages}");
        let expected: Vec<u32> = (0..launches).flat_map(|n| repeated(&table(n + round))).collect();
        for _ in 0..3 {
            stream.fill(&mut out, 0).unwrap();
            let before = subject::driver_calls(&device);
            graph.replay(&mut stream).unwrap();
            assert_eq!(subject::driver_calls(&device), plus(before, 1));
            assert!(stream.read(&out).unwrap() == expected, "round {round}");
        }
        drop(graph);
        assert!(baseline.returns(&mut stream));
    }
}

/// An upload a node, or a threshold meant for eager work that flushes in the middle of the window.
#[test]
fn obj_04_windows_of_launches_with_a_table_each_are_one_upload() {
    large_window(100);
    large_window(2_000);
}

/// The same at a size where anything that is not linear shows.
#[test]
fn obj_04_twenty_thousand_launches_with_a_table_each_are_one_upload() {
    large_window(20_000);
}

/// A recorded upload that re-reads a staging slot which was given to somebody else since.
#[test]
fn host_01_launch_metadata_is_always_the_captured_one() {
    for warm in [false, true] {
        let Some(device) = device(1) else { return };
        let (mut stream, k) = (device.stream().unwrap(), spread(&device));
        let (mut out, mut other) = (stream.alloc::<u32>(N).unwrap(), stream.alloc::<u32>(3).unwrap());
        let mut metadata = table(1);
        let step = |work: &mut Work<'_>| try_launch(work, &k, &metadata, &mut out);
        let (mut graph, ()) = if warm { stream.capture(step) } else { stream.record(step) }.unwrap();
        metadata.fill(0);
        for round in 0..5 {
            for n in 0..100 {
                stream.write(&mut other, &table(100 * round + n + 1000)).unwrap();
                drop(spread_of(&mut stream, &k, &table(100 * round + n + 5000)));
            }
            stream.memory_cleanup().unwrap();
            stream.fill(&mut out, 0).unwrap();
            graph.replay(&mut stream).unwrap();
            assert_eq!(stream.read(&out).unwrap(), repeated(&table(1)), "round {round}");
        }
        assert_ne!(metadata, table(1));
    }
}
