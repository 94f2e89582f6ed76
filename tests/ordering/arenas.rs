//! The memory that belongs to graphs: who shares it, and who never sees it.

use dacapo::prelude::*;
use dacapo::{CaptureOptions, Enqueue};

use crate::support::{Kernels, Sentinels, all, stepped};
use crate::{N, ready};

/// Writes `(from * 2) + 1` to `to`, through a temporary of `len` elements.
fn record(
    stream: &mut Stream,
    k: &Kernels,
    options: CaptureOptions,
    len: usize,
    from: &Buffer<f32>,
    to: &mut Buffer<f32>,
) -> Graph {
    let step = |work: &mut dacapo::Work<'_>| {
        let mut t = work.alloc_scratch::<f32>(len)?;
        work.launch(&k.mul2, Grid::covering(N), (from, t.slice_mut(..N)?))?;
        work.launch(&k.add1, Grid::covering(N), (t.slice(..N)?, to))
    };
    stream.record_with(options, step).unwrap().0
}

/// Two replays in one arena at once would mix up their temporaries.
#[test]
fn graphs_that_share_an_arena_run_one_after_the_other() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let (x, y) = (ready(&mut a, &stepper, 1.0), ready(&mut b, &stepper, 2.0));
    let mut to_a = ready(&mut a, &stepper, 0.0);
    let mut to_b = ready(&mut b, &stepper, 0.0);
    let mut one = record(&mut a, &k, CaptureOptions::new(), N, &x, &mut to_a);
    let held = device.memory_usage();
    let options = CaptureOptions::new().share_arena(&one);
    let mut other = record(&mut b, &k, options, N, &y, &mut to_b);
    assert_eq!(device.memory_usage(), held, "the second graph takes no memory");
    one.replay(&mut a).unwrap();
    other.replay(&mut b).unwrap();
    one.replay(&mut a).unwrap();
    assert!(!stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(!stepper.step(a.id()));
    assert!(stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(all(&a.read(&to_a).unwrap(), 3.0));
    assert!(all(&b.read(&to_b).unwrap(), 5.0));
}

/// The arena belongs to whoever still uses it, in whatever order its graphs go.
#[test]
fn a_shared_arena_outlives_the_graph_that_it_was_made_for() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = ready(&mut a, &stepper, 1.0);
    let mut to_a = ready(&mut a, &stepper, 0.0);
    let mut to_b = ready(&mut b, &stepper, 0.0);
    let before = device.memory_usage().in_use;
    let mut one = record(&mut a, &k, CaptureOptions::new(), N, &x, &mut to_a);
    let mut other = record(&mut b, &k, CaptureOptions::new().share_arena(&one), N, &x, &mut to_b);
    one.replay(&mut a).unwrap();
    drop(one);
    other.replay(&mut b).unwrap();
    assert!(!stepper.step(b.id()), "the dropped graph's replay is still in the arena");
    assert_eq!(stepper.run_all(), 2);
    assert!(all(&b.read(&to_b).unwrap(), 3.0));
    assert!(device.memory_usage().in_use > before);
    drop(other);
    assert_eq!(device.memory_usage().in_use, before);
}

/// An arena that is too small is no reason to fail, and one of its own is no reason to wait.
#[test]
fn a_graph_that_needs_more_than_the_shared_arena_takes_its_own() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let (x, y) = (ready(&mut a, &stepper, 1.0), ready(&mut b, &stepper, 2.0));
    let mut to_a = ready(&mut a, &stepper, 0.0);
    let mut to_b = ready(&mut b, &stepper, 0.0);
    let mut one = record(&mut a, &k, CaptureOptions::new(), N, &x, &mut to_a);
    let options = CaptureOptions::new().share_arena(&one);
    let mut other = record(&mut b, &k, options, 100 * N, &y, &mut to_b);
    assert!(other.arena_bytes() > one.arena_bytes());
    one.replay(&mut a).unwrap();
    other.replay(&mut b).unwrap();
    assert!(stepper.step(b.id()), "they share nothing");
    assert!(stepper.step(a.id()));
    assert!(all(&b.read(&to_b).unwrap(), 5.0));
}

/// A survivor in the arena would be overwritten by the next replay's temporaries, under its owner's hands.
#[test]
fn a_buffer_that_the_user_still_holds_lies_outside_the_arena() {
    let (device, stepper, k) = stepped(1);
    let mut a = device.stream().unwrap();
    let x = ready(&mut a, &stepper, 1.0);
    let mut y = ready(&mut a, &stepper, 0.0);
    let (mut graph, kept) = a
        .record(|work| {
            let mut kept = work.alloc_scratch::<f32>(N)?;
            work.launch(&k.mul2, Grid::covering(N), (&x, &mut kept))?;
            let mut t = work.alloc_scratch::<f32>(N)?;
            work.launch(&k.add1, Grid::covering(N), (&kept, &mut t))?;
            let mut u = work.alloc_scratch::<f32>(N)?;
            work.launch(&k.add1, Grid::covering(N), (&t, &mut u))?;
            work.launch(&k.add1, Grid::covering(N), (&u, &mut y))?;
            Ok(kept)
        })
        .unwrap();
    assert_eq!(graph.arena_bytes(), 2 * 4 * N, "the two that nobody holds");
    graph.replay(&mut a).unwrap();
    assert!(all(&a.read(&kept).unwrap(), 2.0));
    assert!(all(&a.read(&y).unwrap(), 5.0));
    drop(graph);
    let sentinels = Sentinels::post(&mut a);
    assert!(all(&a.read(&kept).unwrap(), 2.0), "it does not go with the graph");
    assert!(sentinels.are_intact(&mut a));
}

/// One half that is held keeps the whole allocation out of the arena.
#[test]
fn a_half_that_the_user_still_holds_survives() {
    let (device, stepper, k) = stepped(1);
    let mut a = device.stream().unwrap();
    let x = ready(&mut a, &stepper, 1.0);
    let (mut graph, high) = a
        .record(|work| {
            let mut low = work.alloc_scratch::<f32>(2 * N)?;
            let mut high = low.split_off(N)?;
            work.launch(&k.mul2, Grid::covering(N), (&x, &mut low))?;
            work.launch(&k.add1, Grid::covering(N), (&low, &mut high))?;
            Ok(high)
        })
        .unwrap();
    assert_eq!(graph.arena_bytes(), 0);
    graph.replay(&mut a).unwrap();
    assert!(all(&a.read(&high).unwrap(), 3.0));
}

/// Pools that handed out arena bytes would let a replay write into somebody's buffer.
#[test]
fn no_pool_hands_out_the_bytes_of_an_arena() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = ready(&mut a, &stepper, 1.0);
    let mut y = ready(&mut a, &stepper, 0.0);
    let mut graph = record(&mut a, &k, CaptureOptions::new(), crate::support::LEN, &x, &mut y);
    let (mine, theirs) = (Sentinels::post(&mut a), Sentinels::post(&mut b));
    for _ in 0..3 {
        graph.replay(&mut a).unwrap();
        graph.replay(&mut b).unwrap();
    }
    a.sync().unwrap();
    assert!(all(&a.read(&y).unwrap(), 3.0));
    assert!(mine.are_intact(&mut a));
    assert!(theirs.are_intact(&mut b));
    // The pools are full of live buffers and swept clean of everything else, and the arena is still the graph's.
    a.memory_cleanup().unwrap();
    graph.replay(&mut b).unwrap();
    assert!(all(&b.read(&y).unwrap(), 3.0));
    assert!(mine.are_intact(&mut a));
}
