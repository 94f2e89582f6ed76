//! Who keeps a table: the graphs that use it, the window that warmed up with it, and nobody after them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::support::*;
use super::{N, Spread, launch, plus, repeated, spread, spread_of, table, try_launch, uploads};

/// Large enough that the usual cache takes none of them.
fn large(n: u32) -> Vec<u32> {
    (n..n + 2000).collect()
}

/// A graph over a table whose bytes somebody else got.
#[test]
fn a_graph_keeps_the_tables_that_it_uses() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let baseline = Baseline::take(&mut stream);
    let (mut graph, ()) = stream.capture(|work| try_launch(work, &k, &table(1), &mut out)).unwrap();
    for n in 0..2000 {
        drop(spread_of(&mut stream, &k, &table(100 + n)));
        if n % 500 == 0 {
            stream.memory_cleanup().unwrap();
            graph.replay(&mut stream).unwrap();
            assert_eq!(stream.read(&out).unwrap(), repeated(&table(1)));
        }
    }
    let before = uploads(&device);
    assert_eq!(spread_of(&mut stream, &k, &table(1)), repeated(&table(1)));
    assert_eq!(uploads(&device), before, "what the graph keeps, the cache still finds");
    drop(graph);
    assert!(baseline.returns(&mut stream));
    drop(spread_of(&mut stream, &k, &table(1)));
    assert_eq!(uploads(&device), plus(before, 1), "and nobody keeps it after the graph");
}

/// Pinned tables that took the room of the others would turn the cache off for good.
#[test]
fn what_graphs_keep_takes_no_room_from_other_tables() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let (tables, start) = (1000..3000, uploads(&device));
    let step = |work: &mut Work<'_>| {
        tables.clone().for_each(|n| launch(work, &k, &table(n), &mut out));
        Ok(())
    };
    let (graph, ()) = stream.capture(step).unwrap();
    for _ in 0..20 {
        (0..50).for_each(|n| launch(&mut stream, &k, &table(n), &mut out));
    }
    assert_eq!(uploads(&device), plus(start, 2000 + 50));
    drop(graph);
    let mut peak_after = 0;
    for n in 0..4000 {
        launch(&mut stream, &k, &table(10_000 + n), &mut out);
        peak_after = device.memory_usage().in_use;
    }
    assert!(peak_after <= 400 << 8, "{peak_after}: what no graph keeps any more has left");
}

/// Whoever looks for memory must find it in the report, and whether it could be let go.
#[test]
fn the_report_tells_what_the_cache_of_each_slot_holds() {
    let Some(device) = device(2) else { return };
    let k = spread(&device);
    let (mut stream, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut out = stream.alloc::<u32>(N).unwrap();
    let tables = |device: &Device| {
        let report = device.memory_report();
        let pools = report.pools.iter().map(|pool| pool.tables);
        pools.map(|tables| (tables.entries, tables.bytes, tables.pinned)).collect::<Vec<_>>()
    };
    assert_eq!(tables(&device), [(0, 0, 0), (0, 0, 0)]);
    (0..3).for_each(|n| launch(&mut stream, &k, &table(n), &mut out));
    let (graph, ()) = stream.record(|work| try_launch(work, &k, &table(1), &mut out)).unwrap();
    let mut prepared = other.prepare().unwrap();
    launch(&mut prepared, &k, &large(0), &mut out);
    assert_eq!(tables(&device), [(3, 36, 1), (1, 8000, 1)]);
    assert!(device.memory_report().to_string().contains("tables 0"));
    other = prepared.cancel();
    drop(graph);
    assert_eq!(tables(&device), [(3, 36, 0), (1, 8000, 0)]);
    other.memory_cleanup().unwrap();
    assert_eq!(tables(&device), [(0, 0, 0), (0, 0, 0)]);
}

fn warm_up(device: &Device, k: &Spread, out: &mut Buffer<u32>) -> Stream<Prepared> {
    let mut prepared = device.stream().unwrap().prepare().unwrap();
    for n in 0..40 {
        launch(&mut prepared, k, &large(n), &mut *out);
        launch(&mut prepared, k, &table(n), &mut *out);
    }
    prepared
}

fn record(device: &Device, k: &Spread, out: &mut Buffer<u32>) -> Stream<Recording> {
    let mut recording = warm_up(device, k, out).begin().unwrap();
    // Some that the warm-up had, and some that are new.
    for n in 20..60 {
        launch(&mut recording, k, &large(n), &mut *out);
        launch(&mut recording, k, &table(n), &mut *out);
    }
    recording
}

/// A window that ends without a graph, in every way there is; what it pinned must be let go of each time.
#[test]
fn an_abandoned_window_unpins_its_tables() {
    type End = fn(&Device, &Spread, &mut Buffer<u32>);
    let ends: [(&str, End); 8] = [
        ("cancel", |device, k, out| drop(warm_up(device, k, out).cancel())),
        ("drop while prepared", |device, k, out| drop(warm_up(device, k, out))),
        ("eviction while prepared", |device, k, out| {
            let prepared = warm_up(device, k, out);
            device.evict(prepared.window().unwrap()).unwrap();
            // The owner never comes back.
            subject::forget(prepared);
        }),
        ("abort", |device, k, out| drop(record(device, k, out).abort())),
        ("drop while recording", |device, k, out| drop(record(device, k, out))),
        ("eviction while recording", |device, k, out| {
            let recording = record(device, k, out);
            device.evict(recording.window().unwrap()).unwrap();
            subject::forget(recording);
        }),
        ("panic", |device, k, out| {
            let panics = || -> () {
                let _recording = record(device, k, out);
                panic!("between begin and end");
            };
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        }),
        ("a doomed end", |device, k, out| {
            let mut recording = record(device, k, out);
            let too_large = vec![0u32; Uniform::<u32>::MAX_BYTES];
            assert!(recording.launch(k, Grid::covering(N), (&too_large, &mut *out, Len, Len)).is_err());
            assert!(recording.end().is_err());
        }),
    ];
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let baseline = Baseline::take(&mut stream);
    for (how, end) in ends {
        end(&device, &k, &mut out);
        assert!(baseline.returns(&mut stream), "{how}");
        assert!(!device.captures().any_active(), "{how}");
    }
}

/// A window's tables that stayed until somebody cleans up would be a leak for those who never do.
#[test]
fn the_end_of_a_window_lets_go_of_what_is_more_than_the_usual() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    for n in 0..5 {
        let mut prepared = device.stream().unwrap().prepare().unwrap();
        (0..200).for_each(|m| launch(&mut prepared, &k, &large(1000 * n + m), &mut out));
        assert!(device.memory_usage().in_use >= 200 * 8000, "all are kept while the window is open");
        drop(prepared.cancel());
        let in_use = device.memory_usage().in_use;
        assert!(in_use <= 1 << 20, "{in_use}");
    }
    assert_eq!(spread_of(&mut stream, &k, &[1]), [1; N]);
}

/// The owner of an evicted window, who finds out at its next launch: what that one brings must not stay pinned.
#[test]
fn an_owner_that_comes_late_pins_nothing() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let baseline = Baseline::take(&mut stream);
    let mut prepared = warm_up(&device, &k, &mut out);
    device.evict(prepared.window().unwrap()).unwrap();
    let before = uploads(&device);
    assert!(prepared.launch(&k, Grid::covering(N), (&table(999), &mut out, Len, Len)).is_err());
    assert_eq!(uploads(&device), before);
    assert!(baseline.returns(&mut stream), "also while the stream is still there");
    drop(prepared);
}
