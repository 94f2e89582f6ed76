//! Where the bytes are, as the report tells.

use super::sparse::{PAGE, PAGE_BYTES, sparse};
use super::support::*;
use dacapo::AllocationMode;

const BYTES: usize = LEN * 4;

/// Numbers that do not add up are worse than none.
#[test]
fn the_report_adds_up_pool_by_pool() {
    let Some((device, k)) = working(3) else { return };
    let [mut a, mut b] = [0; 2].map(|_| device.stream().unwrap());
    let mut buffers = sparse(&mut a, 2, 10);
    let large = b.alloc::<u8>(5 << 20).unwrap();
    let kept = b.alloc::<u8>(5 << 20).unwrap();
    drop(kept);
    let dedicated = b.allocating(AllocationMode::Dedicated, |work| work.alloc::<u8>(1 << 20)).unwrap();
    let (graph, ()) = a.record(|work| work.launch(&k.inc, grid(), (&mut buffers[0].1, Len))).unwrap();
    let report = device.memory_report();
    let [first, second, third] = report.pools[..] else { panic!("{report}") };
    assert_eq!((first.slot, first.pages, first.held), (0, 2, 2 * PAGE_BYTES));
    assert_eq!((first.in_use, first.pinned), (20 * BYTES, BYTES));
    assert_eq!(first.largest_free, (PAGE - 10) * BYTES);
    assert_eq!((second.pages, second.held, second.in_use), (2, 10 << 20, 5 << 20));
    assert_eq!((second.free, second.largest_free, second.pinned), (5 << 20, 5 << 20, 0));
    assert_eq!((third.pages, third.held, third.largest_free), (0, 0, 0));
    assert!(report.pools.iter().all(|pool| pool.held == pool.in_use + pool.free));
    assert_eq!((report.dedicated.pages, report.dedicated.bytes), (1, 1 << 20));
    let usage = device.memory_usage();
    assert_eq!((report.held, report.in_use), (usage.held, usage.in_use));
    assert_eq!(
        report.held,
        report.pools.iter().map(|pool| pool.held).sum::<usize>() + report.dedicated.bytes
    );
    drop((graph, dedicated, large, buffers));
    a.memory_cleanup().unwrap();
    assert!(eventually(|| device.memory_report().held == 0));
    assert_eq!(device.memory_report().in_use, 0);
}

/// Whose the memory is that is left, when a program holds more than it should.
#[test]
fn every_graph_is_told_with_its_arena() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let record = |stream: &mut Stream, options: CaptureOptions| {
        let mut out = stream.alloc::<f32>(LEN).unwrap();
        let recorded = stream.record_with(options, |work| {
            let mut between = work.alloc_scratch::<f32>(LEN)?;
            work.launch(&k.fill, grid(), (&mut between, 1.0f32, Len))?;
            work.launch(&k.add1, grid(), (&between, &mut out, Len, Len))
        });
        (recorded.unwrap().0, out)
    };
    let (first, _a) = record(&mut stream, CaptureOptions::new());
    let (second, _b) = record(&mut stream, CaptureOptions::new().share_arena(&first));
    assert_ne!(first.id(), second.id());
    let arenas = device.memory_report().arenas;
    let told: Vec<_> = arenas.iter().map(|arena| (arena.graph, arena.bytes, arena.shared)).collect();
    assert_eq!(told, [(first.id(), first.arena_bytes(), false), (second.id(), second.arena_bytes(), true)]);
    assert_eq!(device.memory_report().dedicated.pages, 1, "they have one arena");
    drop(first);
    let arenas = device.memory_report().arenas;
    let told: Vec<_> = arenas.iter().map(|arena| (arena.graph, arena.shared)).collect();
    assert_eq!(told, [(second.id(), false)], "the arena is its own by now");
    drop(second);
    assert!(device.memory_report().arenas.is_empty());
}

/// Memory that nobody has and that is not free either.
#[test]
fn what_waits_for_work_in_flight_is_told_as_pending() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut buffer = filled(&mut stream, 1.0);
    stream.sync().unwrap();
    let gate = Gate::close(&mut stream);
    stream.fill(&mut buffer, 2.0).unwrap();
    drop(buffer);
    stream.memory_cleanup().unwrap();
    let report = device.memory_report();
    assert_eq!((report.pending.pages, report.pending.bytes), (1, PAGE_BYTES));
    assert_eq!((report.held, report.in_use), (PAGE_BYTES, 0));
    gate.open();
    assert!(eventually(|| device.memory_report().pending.pages == 0));
}

/// The table is what a person reads first.
#[test]
fn the_report_prints_as_a_table() {
    let Some(device) = open(DeviceOptions::new().max_streams(2).memory_limit(64 << 20)) else { return };
    let mut stream = device.stream().unwrap();
    let _buffer = stream.alloc::<u8>(1536).unwrap();
    let text = device.memory_report().to_string();
    let lines: Vec<&str> = text.lines().collect();
    let index = device.index();
    assert_eq!(
        lines[0],
        format!(
            "device {index} ({}): 2.0 MiB held of at most 64.0 MiB, 1.5 KiB in use, 2.0 MiB free or pending",
            subject::NAME
        )
    );
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(lines[1]), ["pool", "pages", "held", "in", "use", "free", "largest", "pinned"]);
    assert_eq!(cells(lines[2])[..4], ["0", "1", "2.0", "MiB"]);
    assert_eq!(lines[1].len(), lines[2].len(), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("dedicated")), "{text}");
}

#[cfg(feature = "serde")]
#[test]
fn the_report_can_be_serialised() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let _buffer = filled(&mut stream, 1.0);
    let value = serde_json::to_value(device.memory_report()).unwrap();
    assert_eq!(value["backend"], subject::NAME);
    assert_eq!(value["pools"][0]["in_use"], BYTES);
    assert_eq!(value["held"], PAGE_BYTES);
}
