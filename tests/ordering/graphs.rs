//! Replays beside uses of their members and beside other replays.

use dacapo::prelude::*;

use crate::support::{Kernels, all, stepped};
use crate::{N, ready, settle};

/// A graph that adds one to `c`.
fn counting(stream: &mut Stream, k: &Kernels, c: &mut Buffer<f32>) -> Graph {
    stream.record(|work| work.launch(&k.inc, Grid::covering(N), (c,))).unwrap().0
}

/// A graph that writes `from + 1` to `to`.
fn adding(stream: &mut Stream, k: &Kernels, from: &Buffer<f32>, to: &mut Buffer<f32>) -> Graph {
    stream.record(|work| work.launch(&k.add1, Grid::covering(N), (from, to))).unwrap().0
}

/// Two replays in flight would add to the same old value.
#[test]
fn replays_of_one_graph_on_two_streams_run_one_after_the_other() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut c = ready(&mut a, &stepper, 0.0);
    let mut graph = counting(&mut a, &k, &mut c);
    graph.replay(&mut a).unwrap();
    graph.replay(&mut b).unwrap();
    assert!(!stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(stepper.step(b.id()));
    assert!(all(&a.read(&c).unwrap(), 2.0));
}

/// Each graph is in order with itself; only the link between them orders the two.
#[test]
fn two_graphs_that_write_one_buffer_are_ordered_on_two_streams() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut c = ready(&mut a, &stepper, 0.0);
    let mut one = counting(&mut a, &k, &mut c);
    let (mut other, ()) = b.record(|work| work.fill(&mut c, 10.0)).unwrap();
    one.replay(&mut a).unwrap();
    other.replay(&mut b).unwrap();
    one.replay(&mut a).unwrap();
    assert!(!stepper.step(b.id()), "the other graph's replay has not run");
    assert!(stepper.step(a.id()));
    assert!(!stepper.step(a.id()), "the second replay follows the other graph's");
    assert!(stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(all(&a.read(&c).unwrap(), 11.0));
}

/// What one graph reads and the other writes conflicts as well, whichever was recorded first.
#[test]
fn a_graph_that_reads_what_another_writes_waits_for_it() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = ready(&mut a, &stepper, 0.0);
    let mut y = ready(&mut b, &stepper, 0.0);
    let mut reader = adding(&mut b, &k, &x, &mut y);
    let mut writer = counting(&mut a, &k, &mut x);
    writer.replay(&mut a).unwrap();
    reader.replay(&mut b).unwrap();
    writer.replay(&mut a).unwrap();
    assert!(!stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(!stepper.step(a.id()), "the reader still needs what the next replay overwrites");
    assert_eq!(stepper.run_all(), 2);
    assert!(all(&b.read(&y).unwrap(), 2.0));
}

/// Linking graphs for a shared input would run a whole fleet of readers in a row.
#[test]
fn graphs_that_only_read_one_buffer_do_not_wait_for_each_other() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = ready(&mut a, &stepper, 1.0);
    let mut to_a = ready(&mut a, &stepper, 0.0);
    let mut to_b = ready(&mut b, &stepper, 0.0);
    let mut one = adding(&mut a, &k, &x, &mut to_a);
    let mut other = adding(&mut b, &k, &x, &mut to_b);
    one.replay(&mut a).unwrap();
    other.replay(&mut b).unwrap();
    let mut third = ready(&mut b, &stepper, 0.0);
    one.replay(&mut a).unwrap();
    b.copy(&x, &mut third).unwrap();
    assert!(stepper.step(b.id()), "a copy only reads what the replay only reads");
    other.replay(&mut b).unwrap();
    assert!(stepper.step(b.id()), "and so does the other graph");
    settle(&stepper);
}

/// Graphs over different halves of one buffer share no byte.
#[test]
fn graphs_over_two_halves_of_one_buffer_do_not_wait_for_each_other() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut low = a.alloc::<f32>(2 * N).unwrap();
    let mut high = low.split_off(N).unwrap();
    settle(&stepper);
    let mut one = counting(&mut a, &k, &mut low);
    let mut other = counting(&mut b, &k, &mut high);
    one.replay(&mut a).unwrap();
    other.replay(&mut b).unwrap();
    assert!(stepper.step(b.id()));
    b.fill(&mut high, 4.0).unwrap();
    assert!(stepper.step(b.id()), "nor do uses of the half that a replay does not touch");
    assert!(stepper.step(a.id()));
    assert!(all(&a.read(&low).unwrap(), 1.0));
}

/// The graph was made after the use, so the use noted nothing in it: `end` must take it over.
#[test]
fn a_use_before_end_on_another_slot_is_waited_for_by_the_first_replay() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = ready(&mut a, &stepper, 0.0);
    let mut y = ready(&mut a, &stepper, 0.0);
    let mut a = a.prepare().unwrap().begin().unwrap();
    a.launch(&k.add1, Grid::covering(N), (&x, &mut y)).unwrap();
    b.fill(&mut x, 5.0).unwrap();
    let (mut graph, mut a) = a.end().unwrap();
    graph.replay(&mut a).unwrap();
    assert!(!stepper.step(a.id()), "the write of before `end` has not run");
    assert!(stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(all(&a.read(&y).unwrap(), 6.0));
}

/// The same for a reader of what the graph overwrites.
#[test]
fn a_read_before_end_on_another_slot_sees_what_was_there_before_the_replay() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut c = ready(&mut a, &stepper, 1.0);
    let mut seen = ready(&mut b, &stepper, 0.0);
    b.copy(&c, &mut seen).unwrap();
    let mut graph = counting(&mut a, &k, &mut c);
    graph.replay(&mut a).unwrap();
    assert!(!stepper.step(a.id()));
    assert!(stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(all(&b.read(&seen).unwrap(), 1.0));
}

/// Members' records stay out of a replay: a use must look at the graph, and leave its mark there.
#[test]
fn uses_of_members_between_replays_wait_and_are_waited_for() {
    let (device, stepper, k) = stepped(3);
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut x = ready(&mut s[0], &stepper, 0.0);
    let mut y = ready(&mut s[0], &stepper, 0.0);
    let mut seen = ready(&mut s[2], &stepper, 0.0);
    let mut graph = adding(&mut s[0], &k, &x, &mut y);
    graph.replay(&mut s[0]).unwrap();
    s[1].fill(&mut x, 10.0).unwrap();
    s[2].copy(&y, &mut seen).unwrap();
    graph.replay(&mut s[0]).unwrap();
    assert!(!stepper.step(s[1].id()), "the replay reads what this overwrites");
    assert!(!stepper.step(s[2].id()), "the replay writes what this reads");
    assert!(stepper.step(s[0].id()));
    assert!(!stepper.step(s[0].id()), "the second replay waits for both");
    assert!(stepper.step(s[1].id()));
    assert!(!stepper.step(s[0].id()));
    assert!(stepper.step(s[2].id()));
    assert!(stepper.step(s[0].id()));
    assert!(all(&s[0].read(&seen).unwrap(), 1.0));
    assert!(all(&s[0].read(&y).unwrap(), 11.0));
}

/// The graph is gone, and with it the object that remembered the replay.
#[test]
fn a_member_of_a_graph_that_was_dropped_in_flight_waits_for_its_last_replay() {
    let (device, stepper, k) = stepped(3);
    let mut s: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut x = ready(&mut s[0], &stepper, 1.0);
    let mut y = ready(&mut s[0], &stepper, 0.0);
    let mut seen = ready(&mut s[2], &stepper, 0.0);
    let mut graph = adding(&mut s[0], &k, &x, &mut y);
    let ticket = graph.replay(&mut s[0]).unwrap();
    drop(graph);
    s[1].fill(&mut x, 50.0).unwrap();
    s[2].copy(&y, &mut seen).unwrap();
    assert!(!stepper.step(s[1].id()));
    assert!(!stepper.step(s[2].id()));
    assert!(!ticket.is_done());
    assert!(stepper.step(s[0].id()));
    assert!(stepper.step(s[1].id()));
    assert!(stepper.step(s[2].id()));
    assert!(ticket.is_done());
    assert!(all(&s[0].read(&seen).unwrap(), 2.0));
}

/// What the graph only read may be read while its last replay is in flight, also when the graph is gone.
#[test]
fn a_reader_does_not_wait_for_a_dropped_graph_that_only_read() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = ready(&mut a, &stepper, 1.0);
    let mut y = ready(&mut a, &stepper, 0.0);
    let mut seen = ready(&mut b, &stepper, 0.0);
    let mut graph = adding(&mut a, &k, &x, &mut y);
    graph.replay(&mut a).unwrap();
    drop(graph);
    b.copy(&x, &mut seen).unwrap();
    assert!(stepper.step(b.id()));
    settle(&stepper);
}

/// The bytes of a member whose handle and whose graph are both gone: the next tenant waits for the replay.
#[test]
fn the_bytes_of_a_dropped_graph_s_member_wait_for_its_last_replay() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut c = ready(&mut a, &stepper, 0.0);
    let mut graph = counting(&mut a, &k, &mut c);
    drop(c);
    graph.replay(&mut a).unwrap();
    drop(graph);
    assert_eq!(device.memory_usage().in_use, 0);
    let mut tenant = a.alloc_scratch::<f32>(N).unwrap();
    b.fill(&mut tenant, 9.0).unwrap();
    assert!(!stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(stepper.step(b.id()));
    assert!(all(&b.read(&tenant).unwrap(), 9.0));
}

/// A graph that another was linked to is gone: what it left in flight still orders the other one.
#[test]
fn a_replay_waits_for_the_last_replay_of_a_dropped_graph_that_it_conflicts_with() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut c = ready(&mut a, &stepper, 0.0);
    let mut gone = counting(&mut a, &k, &mut c);
    let mut stays = counting(&mut b, &k, &mut c);
    gone.replay(&mut a).unwrap();
    drop(gone);
    stays.replay(&mut b).unwrap();
    assert!(!stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(stepper.step(b.id()));
    assert!(all(&b.read(&c).unwrap(), 2.0));
}

/// A child's two copies write the same temporary and the same counter.
#[test]
fn a_child_embedded_twice_runs_twice_in_order() {
    let (device, stepper, k) = stepped(1);
    let mut a = device.stream().unwrap();
    let mut c = ready(&mut a, &stepper, 1.0);
    let (mut child, ()) = a
        .record(|work| {
            let mut t = work.alloc_scratch::<f32>(N)?;
            work.launch(&k.mul2, Grid::covering(N), (&c, &mut t))?;
            work.launch(&k.add1, Grid::covering(N), (&t, &mut c))
        })
        .unwrap();
    let (mut parent, ()) = a
        .record(|work| {
            work.embed(&mut child)?;
            work.embed(&mut child)
        })
        .unwrap();
    assert_eq!(parent.nodes(), 4);
    let after: Vec<_> = (0..4).map(|n| parent.node(n).unwrap().after).collect();
    assert_eq!(after, [vec![], vec![0], vec![1], vec![2]]);
    parent.replay(&mut a).unwrap();
    assert!(all(&a.read(&c).unwrap(), 7.0));
    drop(child);
    parent.replay(&mut a).unwrap();
    assert!(all(&a.read(&c).unwrap(), 31.0), "the parent keeps what it needs of the child");
}

/// The child's arena is in use by its parent too.
#[test]
fn a_child_replayed_by_itself_and_its_parent_wait_for_each_other() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = ready(&mut a, &stepper, 1.0);
    let mut y = ready(&mut a, &stepper, 0.0);
    let (mut child, ()) = a
        .record(|work| {
            let mut t = work.alloc_scratch::<f32>(N)?;
            work.launch(&k.mul2, Grid::covering(N), (&x, &mut t))?;
            work.launch(&k.add1, Grid::covering(N), (&t, &mut y))
        })
        .unwrap();
    let (mut parent, ()) = a.record(|work| work.embed(&mut child)).unwrap();
    parent.replay(&mut a).unwrap();
    child.replay(&mut b).unwrap();
    parent.replay(&mut a).unwrap();
    assert!(!stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(!stepper.step(a.id()));
    assert!(stepper.step(b.id()));
    assert!(stepper.step(a.id()));
    assert!(all(&a.read(&y).unwrap(), 3.0));
}

/// Embedding on a stream that executes is a replay, and ordered like one.
#[test]
fn a_graph_embedded_into_a_stream_that_executes_is_ordered_like_a_replay() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut c = ready(&mut a, &stepper, 0.0);
    let mut graph = counting(&mut a, &k, &mut c);
    a.embed(&mut graph).unwrap();
    b.fill(&mut c, 4.0).unwrap();
    assert!(!stepper.step(b.id()));
    assert_eq!(stepper.run_all(), 2);
    assert!(all(&b.read(&c).unwrap(), 4.0));
}
