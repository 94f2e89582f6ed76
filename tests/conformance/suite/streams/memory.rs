//! Where a stream's buffers come from.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dacapo::{AllocationMode, Error, Pass};

use super::support::*;

const BYTES: usize = LEN * size_of::<f32>();

/// Rounding a few large buffers up to whole pages of a pool would waste most of a small device.
#[test]
fn a_dedicated_buffer_has_a_page_of_exactly_its_size() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    assert_eq!(device.memory_usage().held, 0);
    let (pass, buffer) = stream
        .allocating(AllocationMode::Dedicated, |work| Ok((work.pass(), work.alloc::<f32>(LEN)?)))
        .unwrap();
    assert_eq!(pass, Pass::Direct);
    assert_eq!(device.memory_usage().held, BYTES);
    assert_eq!(device.memory_usage().in_use, BYTES);
    assert!(all(&stream.read(&buffer).unwrap(), 0.0));
}

/// A pool that kept a dedicated page would hold what its owner asked to be given back.
#[test]
fn a_dedicated_page_goes_back_to_the_driver_when_its_work_is_done_and_not_before() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut buffer =
        stream.allocating(AllocationMode::Dedicated, |work| work.alloc_scratch::<f32>(LEN)).unwrap();
    let gate = Gate::close(&mut stream);
    stream.fill(&mut buffer, 1.0).unwrap();
    drop(buffer);
    let usage = device.memory_usage();
    assert_eq!((usage.held, usage.in_use, usage.pending), (BYTES, 0, BYTES), "the fill still needs it");
    gate.open();
    stream.sync().unwrap();
    assert!(eventually(|| device.memory_usage().held == 0));
}

/// Two small buffers in one page is what a pool is for.
#[test]
fn pooled_buffers_share_a_page_that_the_pool_keeps() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let first = filled(&mut stream, 1.0);
    let held = device.memory_usage().held;
    assert!(held > 2 * BYTES);
    let second = filled(&mut stream, 2.0);
    assert_eq!(device.memory_usage().held, held);
    drop((first, second));
    stream.sync().unwrap();
    assert_eq!(device.memory_usage().held, held);
    assert_eq!(device.memory_usage().in_use, 0);
    stream.memory_cleanup().unwrap();
    assert!(eventually(|| device.memory_usage().held == 0));
}

/// A mode that stuck after an early return would change how the whole program allocates.
#[test]
fn the_mode_ends_with_its_scope_also_on_an_error_and_on_a_panic() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let pooled = |stream: &mut Stream| {
        let kept = filled(stream, 0.0);
        let with_a_page = device.memory_usage().held;
        let in_the_page = filled(stream, 0.0);
        assert_eq!(device.memory_usage().held, with_a_page, "the second one found room in the pool's page");
        drop((kept, in_the_page));
    };
    pooled(&mut stream);
    let failed = stream.allocating(AllocationMode::Dedicated, |work| {
        drop(work.alloc::<f32>(LEN)?);
        Err::<(), _>(Error::step("no frame"))
    });
    assert!(matches!(failed, Err(Error::Step(_))));
    pooled(&mut stream);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        stream.allocating(AllocationMode::Dedicated, |_| -> Result<(), Error> {
            panic!("a scope that gives up")
        })
    }));
    assert!(caught.is_err());
    pooled(&mut stream);
}

/// Work in such a scope is the stream's own: in its order, and nowhere else.
#[test]
fn work_in_an_allocation_scope_is_work_of_the_stream() {
    let Some((device, k)) = working(2) else { return };
    let mut stream = device.stream().unwrap();
    let x = filled(&mut stream, 1.0);
    let id = stream.id();
    let y = stream
        .allocating(AllocationMode::Dedicated, |work| {
            assert_eq!(work.stream_id(), id);
            let mut y = work.alloc_scratch::<f32>(LEN)?;
            work.launch(&k.add1, grid(), (&x, &mut y, Len, Len))?;
            Ok(y)
        })
        .unwrap();
    let (mut graph, z) = stream
        .record(|work| {
            let mut z = work.alloc::<f32>(LEN)?;
            work.launch(&k.mul2, grid(), (&y, &mut z, Len, Len))?;
            Ok(z)
        })
        .unwrap();
    graph.replay(&mut stream).unwrap();
    assert!(all(&stream.read(&z).unwrap(), 4.0), "a graph pins a dedicated buffer like any other");
}

/// Dedicated pages count against the limit, and a reservation that meets it reclaims before it fails.
#[test]
fn a_limit_holds_in_both_modes_and_free_pages_make_room() {
    let limit = 3 * BYTES;
    let Some(device) = open(DeviceOptions::new().max_streams(1).memory_limit(limit)) else { return };
    let mut stream = device.stream().unwrap();
    let mut dedicated =
        || stream.allocating(AllocationMode::Dedicated, |work| work.alloc_scratch::<f32>(LEN));
    let mut kept: Vec<_> = (0..3).map(|_| dedicated().unwrap()).collect();
    let error = dedicated().unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory { requested: BYTES, held, limit: Some(at), .. } if held == limit && at == limit),
        "{error}"
    );
    kept.pop();
    kept.push(dedicated().unwrap());
    assert_eq!(device.memory_usage().in_use, limit);
}

/// What any mode kept would be lost to the rest of the machine.
#[test]
fn everything_goes_back_to_the_driver() {
    let Some((device, k)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    let before = device.memory_usage();
    assert_eq!(before.in_use, 0);
    for mode in [AllocationMode::Pooled, AllocationMode::Persistent, AllocationMode::Dedicated] {
        let mut buffers = stream
            .allocating(mode, |work| {
                (0..20).map(|n| work.alloc::<f32>(n * 50_000)).collect::<Result<Vec<_>, _>>()
            })
            .unwrap();
        for buffer in &mut buffers {
            let grid = Grid::covering(buffer.len());
            stream.launch(&k.inc, grid, (&mut *buffer, Len)).unwrap();
            assert!(stream.read(&*buffer).unwrap().iter().all(|x| *x == 1.0));
        }
    }
    assert!(eventually(|| {
        stream.memory_cleanup().unwrap();
        device.memory_usage().held == 0
    }));
}

/// Without anybody who waits, pages that wait for work in flight would stay for ever.
#[test]
fn a_dedicated_page_goes_back_though_nobody_waits() {
    let Some((device, k)) = working(4) else { return };
    let mut stream = device.stream().unwrap();
    let mut x = stream.allocating(AllocationMode::Dedicated, |work| work.alloc::<f32>(1 << 20)).unwrap();
    stream.launch(&k.inc, Grid::covering(1 << 20), (&mut x, Len)).unwrap();
    let held = device.memory_usage().held;
    drop(x);
    assert!(eventually(|| device.memory_usage().held < held));
}
