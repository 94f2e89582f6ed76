//! How long work took, by the device's own clock.

use std::time::{Duration, Instant};

use dacapo::prelude::*;
use dacapo::{Error, Touches};

use crate::support::{Buf, Gate, Kernels, eventually, ramp, written};

/// At 2 GHz, 10 ms; no clock of a GPU is ten times as fast.
const LONG: u64 = 20_000_000;
const SHORT: u64 = 1000;
const AT_LEAST: Duration = Duration::from_millis(1);

type Cuda = dacapo::cuda::Cuda;

fn spinning(stream: &mut Stream<NoCapture, Cuda>, k: &Kernels, x: &mut Buf<u32>, cycles: u64) -> Graph<Cuda> {
    let record = stream.record(|work| work.launch(&k.spin, Grid::covering(1), (x, Len, cycles)));
    let (mut graph, ()) = record.unwrap();
    // The first replay of a graph also uploads it.
    graph.replay(stream).unwrap().wait().unwrap();
    graph
}

/// A clock of the host's would time the way there and back as well, and miss what is in flight.
#[test]
fn a_replays_time_is_that_of_the_device() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(1).unwrap();
    let mut short = spinning(&mut stream, &k, &mut x, SHORT);
    let mut long = spinning(&mut stream, &k, &mut x, LONG);
    let started = Instant::now();
    let mut replay = |graph: &mut Graph<Cuda>| graph.replay_timed(&mut stream).unwrap();
    let tickets = [replay(&mut short), replay(&mut long), replay(&mut short)];
    let [first, second, third] = tickets.map(|ticket| ticket.wait().unwrap());
    // The two clocks may differ by a little.
    let all = started.elapsed() + Duration::from_micros(100);
    assert!(first + second + third <= all, "{first:?} + {second:?} + {third:?} <= {all:?}");
    assert!(second > AT_LEAST && first < second && third < second, "{first:?}, {second:?}, {third:?}");
    assert!(first > Duration::ZERO && third > Duration::ZERO);
    assert_eq!(stream.read(&x).unwrap(), [5]);
}

/// Two ways to ask the same of one piece of work.
#[test]
fn a_profile_and_a_ticket_agree_in_both_phases_that_execute() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(1).unwrap();
    let mut graph = spinning(&mut stream, &k, &mut x, LONG);
    let agree = |a: Duration, b: Duration| a > AT_LEAST && b > AT_LEAST && a < 4 * b && b < 4 * a;
    let ((), idle) = stream.profile(|work| work.embed(&mut graph)).unwrap();
    let ticket = graph.replay_timed(&mut stream).unwrap().wait().unwrap();
    assert!(agree(idle.device, ticket), "{idle:?}, {ticket:?}");
    assert!(idle.enqueue < idle.device, "to enqueue is not to wait: {idle:?}");

    let mut prepared = stream.prepare().unwrap();
    let launch = prepared.profile(|w| w.launch(&k.spin, Grid::covering(1), (&mut x, Len, LONG)));
    let ((), warm) = launch.unwrap();
    let ticket = graph.replay_timed(&mut prepared).unwrap().wait().unwrap();
    assert!(agree(warm.device, ticket), "{warm:?}, {ticket:?}");
    let nothing = prepared.profile(|_| Ok(())).unwrap().1.device;
    assert!(nothing < warm.device, "{nothing:?}, {warm:?}");
}

/// A clock that ran while the replay stood behind somebody else's work would time that.
#[test]
fn what_a_replay_waits_for_is_not_in_its_time() {
    let (device, k) = crate::device!();
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u32>(1).unwrap();
    let mut graph = spinning(&mut a, &k, &mut x, SHORT);
    let grid = Grid::covering(1);
    let ((), long) = a.profile(|work| work.launch(&k.spin, grid, (&mut x, Len, LONG))).unwrap();
    a.launch(&k.spin, grid, (&mut x, Len, LONG)).unwrap();
    let behind_its_own = graph.replay_timed(&mut a).unwrap();
    b.launch(&k.spin, grid, (&mut x, Len, LONG)).unwrap();
    let behind_another = graph.replay_timed(&mut a).unwrap();
    for ticket in [behind_its_own, behind_another] {
        let took = ticket.wait().unwrap();
        assert!(took < long.device, "{took:?}, {long:?}");
    }
    assert_eq!(a.read(&x).unwrap(), [6]);
}

#[test]
fn a_timed_replay_in_flight_times_out_and_has_its_time_later() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc::<u32>(1).unwrap();
    let mut graph = spinning(&mut stream, &k, &mut x, SHORT);
    let gate = Gate::close(&mut stream);
    let ticket = graph.replay_timed(&mut stream).unwrap();
    let started = Instant::now();
    let error = ticket.wait_timeout(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, Error::Timeout { operation: "wait", .. }), "{error}");
    assert!(!ticket.is_done());
    let held = started.elapsed();
    drop(graph);
    gate.open();
    assert!(eventually(|| ticket.is_done()), "it becomes done though nobody waits");
    let took = ticket.wait().unwrap();
    assert!(took < held, "the gate was before it: {took:?}, {held:?}");
    assert_eq!(ticket.clone().wait().unwrap(), took);
}

/// The device runs what reads bytes that were never written all the same: to have run is not to have gone well.
#[test]
fn a_replay_that_reads_what_was_never_written_has_no_time() {
    let (device, k) = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(10));
    let (mut graph, ()) = stream.record(|w| w.launch(&k.inc, Grid::covering(10), (&mut x, Len))).unwrap();
    stream.host_call_with(Touches::new().writes(&mut x), || panic!("no input today")).unwrap();
    let late = graph.replay_timed(&mut stream).unwrap();
    assert!(matches!(late.wait(), Err(Error::CallbackPanicked { .. })));
    let known = graph.replay_timed(&mut stream).unwrap();
    assert!(matches!(known.wait(), Err(Error::CallbackPanicked { .. })));
    stream.write(&mut x, ramp(10)).unwrap();
    assert!(graph.replay_timed(&mut stream).unwrap().wait().unwrap() > Duration::ZERO);
    assert!(stream.sync().is_err(), "and the stream's own account of it");
}

/// Events that were not given back, or given to two, would show here.
#[test]
fn hundreds_of_timed_replays_in_flight_each_have_a_time() {
    let (device, k) = crate::device!();
    let mut streams = [device.stream().unwrap(), device.stream().unwrap()];
    let mut x = streams[0].alloc::<u32>(1).unwrap();
    let mut graph = spinning(&mut streams[0], &k, &mut x, SHORT);
    let tickets: Vec<_> =
        (0..300).map(|round| graph.replay_timed(&mut streams[round % 2]).unwrap()).collect();
    let times: Vec<Duration> = tickets.iter().map(|ticket| ticket.wait().unwrap()).collect();
    assert!(times.iter().all(|time| *time > Duration::ZERO));
    assert_eq!(streams[1].read(&x).unwrap(), [301]);
}
