//! How long one replay took: what its time holds, and when there is none.

mod support;

use std::time::{Duration, Instant};

use dacapo::host::Severity;
use dacapo::prelude::*;
use dacapo::{AnyStream, Call, Error, Result, TimedTicket};

use support::{Kernels, all, filled, grid, stepped, working};

const SHORT: Duration = Duration::from_millis(1);

fn increment(stream: &mut Stream, k: &Kernels, c: &mut Buffer<f32>) -> Graph {
    stream.record(|work| work.launch(&k.inc, grid(), (c,))).unwrap().0
}

fn is_refusal_of(error: &Error, of: Call) -> bool {
    matches!(error, Error::Driver { call, .. } if *call == of)
}

/// A span that took in a neighbour on the same slot would blame the graph for somebody else's work.
#[test]
fn a_replays_time_is_its_own_and_no_neighbours() {
    let (device, stepper, k) = stepped(1);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut c, mut other) = (filled(&mut a, 0.0), filled(&mut b, 0.0));
    let mut graph = increment(&mut a, &k, &mut c);
    b.launch(&k.inc, grid(), (&mut other,)).unwrap();
    let ticket = graph.replay_timed(&mut a).unwrap();
    b.launch(&k.inc, grid(), (&mut other,)).unwrap();

    while stepper.pending(a.id()) > 4 {
        assert!(stepper.step(a.id()));
    }
    let around = Instant::now();
    assert!(stepper.step(a.id()), "the first stamp");
    let within = Instant::now();
    assert!(stepper.step(a.id()), "the replay");
    let within = within.elapsed();
    assert!(ticket.ticket().is_done() && !ticket.is_done(), "its time is not taken yet");
    assert!(stepper.step(a.id()), "the second stamp");
    let around = around.elapsed();

    assert!(ticket.is_done());
    let took = ticket.wait().unwrap();
    assert!(within <= took && took <= around, "{within:?} <= {took:?} <= {around:?}");
    assert_eq!(stepper.pending(a.id()), 1, "to ask for the time ran nothing");
    assert_eq!(ticket.wait().unwrap(), took, "asked again, it says the same");
    assert!(all(&a.read(&c).unwrap(), 1.0));
}

/// A clock that ran while the replay stood in the queue of another stream would time that stream.
#[test]
fn what_a_replay_waits_for_is_not_in_its_time() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut c = filled(&mut a, 0.0);
    let mut graph = increment(&mut a, &k, &mut c);
    stepper.run_all();
    b.launch(&k.inc, grid(), (&mut c,)).unwrap();
    let ticket = graph.replay_timed(&mut a).unwrap();
    assert!(!stepper.step(a.id()), "it waits for the other stream, clock and all");
    stepper.run(b.id());
    let since = Instant::now();
    stepper.run(a.id());
    assert!(ticket.wait().unwrap() <= since.elapsed());
    assert!(all(&a.read(&c).unwrap(), 2.0));
}

#[test]
fn a_timed_replay_in_flight_can_be_waited_for_with_a_limit_from_anywhere_without_its_graph() {
    let (device, stepper, k) = stepped(1);
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let mut graph = increment(&mut stream, &k, &mut c);
    let ticket = graph.replay_timed(&mut stream).unwrap();
    let hold = stepper.hold();
    assert!(matches!(ticket.wait_timeout(SHORT), Err(Error::Timeout { operation: "wait", .. })));
    assert!(!ticket.is_done() && format!("{ticket:?}").contains("false"));
    drop(graph);
    drop(hold);
    let clone = ticket.clone();
    let elsewhere = std::thread::spawn(move || clone.wait()).join().unwrap().unwrap();
    assert_eq!(ticket.wait_timeout(SHORT).unwrap(), elsewhere);
    ticket.ticket().wait().unwrap();
}

/// The time of a replay that did not do its work is the best that any tuner ever saw.
#[test]
fn a_replay_that_failed_or_skipped_has_no_time() {
    let (device, k) = working(1);
    let mut stream = device.stream().unwrap();
    let (mut x, mut y) = (filled(&mut stream, 0.0), filled(&mut stream, 0.0));
    let (mut fails, ()) = stream.record(|work| work.launch(&k.broken, grid(), (&mut x,))).unwrap();
    let (mut skips, ()) = stream.record(|work| work.launch(&k.add1, grid(), (&x, &mut y))).unwrap();
    let (failed, skipped) =
        (fails.replay_timed(&mut stream).unwrap(), skips.replay_timed(&mut stream).unwrap());
    for ticket in [&failed, &skipped] {
        assert!(matches!(ticket.wait(), Err(Error::KernelPanicked { .. })));
        assert!(matches!(ticket.ticket().wait(), Err(Error::KernelPanicked { .. })));
    }
    stream.fill(&mut x, 1.0).unwrap();
    skips.replay_timed(&mut stream).unwrap().wait().unwrap();
    assert!(all(&stream.read(&y).unwrap(), 2.0));
}

/// A stream with a counter, a graph that increments it, and a driver that refuses the `n`-th stamp.
fn refusing_stamp(n: u64) -> (Stream, Buffer<f32>, Graph, Result<TimedTicket>) {
    let (device, k) = working(1);
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let mut graph = increment(&mut stream, &k, &mut c);
    device.faults().fail_nth(Call::Stamp, n, Severity::Call);
    let replayed = graph.replay_timed(&mut stream);
    (stream, c, graph, replayed)
}

/// Had it run all the same, who takes the error for what it says would run it again.
#[test]
fn a_replay_whose_clock_cannot_start_is_refused_as_a_whole() {
    let (mut stream, mut c, mut graph, replayed) = refusing_stamp(1);
    assert!(is_refusal_of(&replayed.unwrap_err(), Call::Stamp));
    let error = stream.read(&c).unwrap_err();
    assert!(matches!(&error, Error::Tainted { cause } if is_refusal_of(cause, Call::Stamp)), "{error}");
    stream.fill(&mut c, 5.0).unwrap();
    graph.replay_timed(&mut stream).unwrap().wait().unwrap();
    assert!(all(&stream.read(&c).unwrap(), 6.0));
}

/// Places in the queue that were meant for a clock must not be left without anything that passes them.
#[test]
fn a_timed_replay_that_cannot_be_ordered_is_refused_and_leaves_a_usable_stream() {
    let (device, stepper, k) = stepped(2);
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut c = filled(&mut a, 0.0);
    let mut graph = increment(&mut a, &k, &mut c);
    stepper.run_all();
    b.launch(&k.inc, grid(), (&mut c,)).unwrap();
    device.faults().fail_nth(Call::Wait, 1, Severity::Call);
    assert!(is_refusal_of(&graph.replay_timed(&mut a).unwrap_err(), Call::Wait));
    a.sync().unwrap();
    assert!(matches!(b.read(&c), Err(Error::Tainted { .. })));
    b.fill(&mut c, 1.0).unwrap();
    graph.replay_timed(&mut a).unwrap().wait().unwrap();
    assert!(all(&b.read(&c).unwrap(), 2.0));
}

#[test]
fn a_replay_whose_clock_cannot_stop_runs_and_says_that_it_has_no_time() {
    let (mut stream, c, mut graph, replayed) = refusing_stamp(2);
    let ticket = replayed.unwrap();
    assert!(is_refusal_of(&ticket.wait().unwrap_err(), Call::Stamp));
    ticket.ticket().wait().unwrap();
    stream.sync().unwrap();
    assert!(all(&stream.read(&c).unwrap(), 1.0));
    graph.replay_timed(&mut stream).unwrap().wait().unwrap();
}

#[test]
fn a_replay_that_is_refused_behind_its_first_stamp_leaves_a_usable_stream() {
    let (device, k) = working(1);
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let mut graph = increment(&mut stream, &k, &mut c);
    device.faults().fail_nth(Call::Replay, 1, Severity::Call);
    assert!(is_refusal_of(&graph.replay_timed(&mut stream).unwrap_err(), Call::Replay));
    assert!(matches!(stream.read(&c), Err(Error::Tainted { .. })));
    stream.fill(&mut c, 1.0).unwrap();
    graph.replay_timed(&mut stream).unwrap().wait().unwrap();
    assert!(all(&stream.read(&c).unwrap(), 2.0));
}

#[test]
fn a_lost_device_gives_no_time() {
    let (device, stepper, k) = stepped(1);
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let mut graph = increment(&mut stream, &k, &mut c);
    let ticket = graph.replay_timed(&mut stream).unwrap();
    let before = ticket.clone();
    device.faults().fail_nth(Call::Execute, 1, Severity::Sticky);
    stepper.run_all();
    assert!(matches!(ticket.wait(), Err(Error::DeviceLost { .. })));
    assert!(matches!(before.wait_timeout(SHORT), Err(Error::DeviceLost { .. })));
    assert!(matches!(graph.replay_timed(&mut stream), Err(Error::DeviceLost { .. })));
}

/// To time is opt-in: a stamp is a call of the driver.
#[test]
fn only_a_timed_replay_asks_for_the_time() {
    let (device, k) = working(1);
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let mut graph = increment(&mut stream, &k, &mut c);
    graph.replay(&mut stream).unwrap().wait().unwrap();
    assert_eq!(device.faults().count(Call::Stamp), 0);
    graph.replay_timed(&mut stream).unwrap().wait().unwrap();
    assert_eq!(device.faults().count(Call::Stamp), 2);
}

#[test]
fn replays_are_timed_in_every_phase_that_replays_and_refused_in_the_other() {
    let (device, k) = working(1);
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let mut graph = increment(&mut stream, &k, &mut c);
    let (mut empty, ()) = stream.record(|_| Ok(())).unwrap();
    empty.replay_timed(&mut stream).unwrap().wait().unwrap();

    let mut prepared = stream.prepare().unwrap();
    graph.replay_timed(&mut prepared).unwrap().wait().unwrap();
    let mut any = AnyStream::from(prepared);
    graph.replay_timed(&mut any).unwrap().wait().unwrap();
    any.begin().unwrap();
    let error = graph.replay_timed(&mut any).unwrap_err();
    assert!(matches!(error, Error::WrongPhase { operation: "replay", .. }), "{error}");
    any.abort().unwrap();
    assert!(all(&any.read(&c).unwrap(), 2.0));
}

#[test]
fn nobody_waits_for_a_time_inside_a_callback() {
    let (device, k) = working(1);
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let mut graph = increment(&mut stream, &k, &mut c);
    let ticket = graph.replay_timed(&mut stream).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    stream.host_call(move || sender.send(ticket.wait()).unwrap()).unwrap();
    assert!(matches!(receiver.recv().unwrap(), Err(Error::InCallback { .. })));
}
