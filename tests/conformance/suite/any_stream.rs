//! `AnyStream`: the phases where they are known only at run time.

use std::time::Duration;

use dacapo::{
    AllocationMode, Backend, Call, CaptureStatus, Error, ErrorKind, Layout, PhaseName, WindowPhase,
};

use super::support::*;
use super::zoo;

const PHASES: [PhaseName; 3] = [PhaseName::NoCapture, PhaseName::Prepared, PhaseName::Recording];

/// A stream in that phase.
fn any(device: &Device, phase: PhaseName) -> AnyStream {
    let mut any = AnyStream::from(device.stream().unwrap());
    if phase != PhaseName::NoCapture {
        any.prepare().unwrap();
    }
    if phase == PhaseName::Recording {
        any.begin().unwrap();
    }
    any
}

/// What the status record says of the stream.
fn recorded_phase(status: &CaptureStatus, any: &AnyStream) -> PhaseName {
    let window = status.windows().into_iter().find(|(window, _)| window.stream() == any.stream_id());
    assert_eq!(window.map(|(window, _)| window), any.window());
    match window {
        None => PhaseName::NoCapture,
        Some((_, WindowPhase::Prepared)) => PhaseName::Prepared,
        Some((_, WindowPhase::Recording)) => PhaseName::Recording,
    }
}

type Call1 = fn(&mut AnyStream, &mut Graph, &Buffer<f32>) -> Result<(), Error>;

/// Every call that some phase forbids, and the phases that allow it.
const MATRIX: &[(&str, &[PhaseName], Call1)] = &[
    ("prepare", &[PhaseName::NoCapture], |any, _, _| any.prepare()),
    ("prepare", &[PhaseName::NoCapture], |any, graph, _| {
        any.prepare_with(CaptureOptions::new().share_arena(graph))
    }),
    ("begin", &[PhaseName::Prepared], |any, _, _| any.begin()),
    ("cancel", &[PhaseName::Prepared], |any, _, _| any.cancel()),
    ("end", &[PhaseName::Recording], |any, _, _| any.end().map(drop)),
    ("abort", &[PhaseName::Recording], |any, _, _| any.abort()),
    ("read", EXECUTES, |any, _, x| any.read(x).map(drop)),
    ("read", EXECUTES, |any, _, x| any.read_timeout(x, Duration::from_secs(30)).map(drop)),
    ("read", EXECUTES, |any, _, x| any.read_into(x, &mut [0.0; LEN])),
    ("read", EXECUTES, |any, _, x| any.read_into_timeout(x, &mut [0.0; LEN], Duration::from_secs(30))),
    ("read_pitched", EXECUTES, |any, _, x| any.read_pitched(x, &pitched()).map(drop)),
    ("read_pitched", EXECUTES, |any, _, x| any.read_pitched_into(x, &pitched(), &mut [0.0; 4])),
    ("read_async", EXECUTES, |any, _, x| any.read_async(x).map(drop)),
    ("sync", EXECUTES, |any, _, _| any.sync()),
    ("sync", EXECUTES, |any, _, _| any.sync_timeout(Duration::from_secs(30))),
    ("profile", EXECUTES, |any, _, _| any.profile(|_| Ok(())).map(drop)),
    ("replay", EXECUTES, |any, graph, _| graph.replay(any).map(drop)),
    ("memory_cleanup", &[PhaseName::NoCapture], |any, _, _| any.memory_cleanup()),
    ("allocating", &[PhaseName::NoCapture], |any, _, _| {
        any.allocating(AllocationMode::Dedicated, |work| work.alloc::<f32>(1).map(drop))
    }),
];

fn pitched() -> Layout {
    Layout::pitched(&[2, 2], 8).unwrap()
}

const EXECUTES: &[PhaseName] = &[PhaseName::NoCapture, PhaseName::Prepared];

/// A call out of order that closed the window, doomed the recording, or reached the driver would punish the innocent part
/// of a server for one wrong request.
#[test]
fn a_call_that_the_phase_forbids_says_so_and_changes_nothing() {
    for (i, (operation, allowed, call)) in MATRIX.iter().enumerate() {
        for phase in PHASES.into_iter().filter(|phase| !allowed.contains(phase)) {
            let Some((device, k)) = working(1) else { return };
            let status = device.captures();
            let mut setup = device.stream().unwrap();
            let x = filled(&mut setup, 1.0);
            let (mut graph, ()) = setup.record(|_| Ok(())).unwrap();
            let mut y = filled(&mut setup, 0.0);
            let mut any = any(&device, phase);
            setup.sync().unwrap();
            let (window, before) = (any.window(), subject::driver_calls(&device));

            let error = call(&mut any, &mut graph, &x).unwrap_err();
            assert!(
                matches!(error, Error::WrongPhase { operation: refused, is, .. } if refused == *operation && is == phase),
                "{i}: {error}"
            );
            assert_eq!(error.kind(), ErrorKind::Misuse);
            assert!(error.to_string().contains(&phase.to_string()), "{error}");
            assert_eq!((any.phase(), any.window()), (phase, window), "{operation}");
            assert_eq!(recorded_phase(&status, &any), phase);
            assert_eq!(subject::driver_calls(&device), before, "{operation}: the driver was asked");

            let nodes = finish(&mut any, &k, &x, &mut y);
            assert_eq!(nodes, 1, "{operation}: nothing was recorded beside the launch");
        }
    }
}

/// The other half of the matrix: what is allowed is really done, and the phase is the one that follows.
#[test]
fn a_call_that_the_phase_allows_is_done() {
    for (i, (operation, allowed, call)) in MATRIX.iter().enumerate() {
        for phase in *allowed {
            let Some((device, k)) = working(1) else { return };
            let status = device.captures();
            let mut setup = device.stream().unwrap();
            let x = filled(&mut setup, 1.0);
            let mut y = filled(&mut setup, 0.0);
            let (mut graph, ()) = setup.record(|_| Ok(())).unwrap();
            let mut any = any(&device, *phase);
            call(&mut any, &mut graph, &x).unwrap();
            let expected = match *operation {
                "prepare" => PhaseName::Prepared,
                "begin" => PhaseName::Recording,
                "cancel" | "end" | "abort" => PhaseName::NoCapture,
                _ => *phase,
            };
            assert_eq!(any.phase(), expected, "{i}: {operation}");
            assert_eq!(recorded_phase(&status, &any), expected, "{i}: {operation}");
            finish(&mut any, &k, &x, &mut y);
        }
    }
}

/// Goes on from whatever phase to a graph with one more launch, checks that it works, and returns how many nodes it has.
fn finish(any: &mut AnyStream, k: &Kernels, x: &Buffer<f32>, y: &mut Buffer<f32>) -> usize {
    if any.phase() == PhaseName::NoCapture {
        any.prepare().unwrap();
    }
    if any.phase() == PhaseName::Prepared {
        any.begin().unwrap();
    }
    any.launch(&k.add1, grid(), (x, &mut *y, Len, Len)).unwrap();
    let mut graph = any.end().unwrap();
    assert_eq!((any.phase(), any.window()), (PhaseName::NoCapture, None));
    assert!(all(&any.read(&*y).unwrap(), 0.0), "recorded, and not run");
    graph.replay(any).unwrap();
    assert!(all(&any.read(&*y).unwrap(), 2.0));
    graph.nodes()
}

/// A conversion that opened, closed or renamed the window would lose a recording on the way to the actor that ends it.
#[test]
fn typed_streams_go_in_and_come_out_in_their_phase() {
    let Some((device, k)) = working(1) else { return };
    let status = device.captures();
    let stream = device.stream().unwrap();
    let id = stream.id();

    let any = AnyStream::from(stream);
    assert_eq!((any.phase(), any.window(), any.stream_id()), (PhaseName::NoCapture, None, id));
    let mut stream = Stream::<NoCapture>::try_from(any).unwrap();
    assert_eq!(stream.id(), id);
    let x = filled(&mut stream, 1.0);
    let mut y = filled(&mut stream, 0.0);

    let prepared = stream.prepare().unwrap();
    let window = prepared.window();
    let any = AnyStream::from(prepared);
    assert_eq!((any.phase(), any.window()), (PhaseName::Prepared, window));
    let prepared = Stream::<Prepared>::try_from(any).unwrap();
    assert_eq!((prepared.id(), prepared.window()), (id, window));

    let mut recording = prepared.begin().unwrap();
    recording.launch(&k.add1, grid(), (&x, &mut y, Len, Len)).unwrap();
    let mut any = AnyStream::from(recording);
    assert_eq!((any.phase(), any.window()), (PhaseName::Recording, window));
    any.launch(&k.inc, grid(), (&mut y, Len)).unwrap();
    let mut recording = Stream::<Recording>::try_from(any).unwrap();
    assert_eq!((recording.id(), recording.window()), (id, window));
    recording.launch(&k.inc, grid(), (&mut y, Len)).unwrap();
    assert_eq!(status.active_count(), 1);
    let (mut graph, mut stream) = recording.end().unwrap();
    assert_eq!(graph.nodes(), 3);
    graph.replay(&mut stream).unwrap();
    assert!(all(&stream.read(&y).unwrap(), 4.0));
}

/// The wrong guess costs a stream neither its window nor what it recorded.
#[test]
fn a_stream_in_another_phase_comes_back_as_it_was() {
    /// Tries to make a `Stream<P>` of it, and returns what came back.
    fn refused<P: dacapo::Phase>(any: AnyStream, is: PhaseName) -> AnyStream
    where
        Stream<P>: TryFrom<AnyStream, Error = dacapo::Refused<AnyStream>>,
    {
        let (id, window) = (any.stream_id(), any.window());
        let (any, error) = Stream::<P>::try_from(any).unwrap_err().into_parts();
        assert!(matches!(error, Error::WrongPhase { is: said, .. } if said == is), "{error}");
        assert_eq!((any.phase(), any.stream_id(), any.window()), (is, id, window));
        any
    }
    let Some((device, k)) = working(1) else { return };
    let mut setup = device.stream().unwrap();
    let x = filled(&mut setup, 1.0);
    let mut y = filled(&mut setup, 0.0);

    let mut any = any(&device, PhaseName::NoCapture);
    any = refused::<Prepared>(any, PhaseName::NoCapture);
    any = refused::<Recording>(any, PhaseName::NoCapture);
    any.prepare().unwrap();
    any = refused::<NoCapture>(any, PhaseName::Prepared);
    any = refused::<Recording>(any, PhaseName::Prepared);
    any.begin().unwrap();
    any.launch(&k.add1, grid(), (&x, &mut y, Len, Len)).unwrap();
    any = refused::<NoCapture>(any, PhaseName::Recording);
    any = refused::<Prepared>(any, PhaseName::Recording);
    let mut graph = any.end().unwrap();
    assert_eq!(graph.nodes(), 1);
    graph.replay(&mut any).unwrap();
    assert!(all(&any.read(&y).unwrap(), 2.0));
}

/// Every operation that a typed stream has: executed, or recorded.
#[test]
fn a_step_runs_on_it_in_every_phase() {
    fn step<B: Backend>(
        s: &mut impl Enqueue<B>,
        add: &dacapo::Kernel<zoo::Map<f32>, B>,
        x: &dacapo::Buffer<f32, B>,
        y: &mut dacapo::Buffer<f32, B>,
    ) -> dacapo::Result<()> {
        let mut t = s.alloc_scratch::<f32>(LEN)?;
        s.launch(add, Grid::covering(LEN), (x, &mut t, Len, Len))?;
        s.copy(&t, y)
    }
    let Some((device, k)) = working(1) else { return };
    let mut setup = device.stream().unwrap();
    let x = filled(&mut setup, 1.0);
    let mut y = filled(&mut setup, 0.0);
    let mut any = any(&device, PhaseName::NoCapture);
    step(&mut any, &k.add1, &x, &mut y).unwrap();
    assert!(all(&any.read(&y).unwrap(), 2.0));
    any.fill(&mut y, 0.0).unwrap();
    any.prepare().unwrap();
    step(&mut any, &k.add1, &x, &mut y).unwrap();
    assert!(all(&any.read(&y).unwrap(), 2.0));
    any.fill(&mut y, 0.0).unwrap();
    any.begin().unwrap();
    step(&mut any, &k.add1, &x, &mut y).unwrap();
    let mut graph = any.end().unwrap();
    assert!(all(&any.read(&y).unwrap(), 0.0));
    any.embed(&mut graph).unwrap();
    assert!(all(&any.read(&y).unwrap(), 2.0));
}

/// While it records, a graph becomes part of the recording; a replay is what the matrix refuses.
#[test]
fn a_graph_is_embedded_while_it_records() {
    let Some((device, k)) = working(1) else { return };
    let mut setup = device.stream().unwrap();
    let mut c = filled(&mut setup, 0.0);
    let (mut child, ()) = setup.record(|work| work.launch(&k.inc, grid(), (&mut c, Len))).unwrap();
    let mut any = any(&device, PhaseName::Recording);
    any.embed(&mut child).unwrap();
    any.embed(&mut child).unwrap();
    let mut graph = any.end().unwrap();
    assert_eq!(graph.nodes(), 2);
    graph.replay(&mut any).unwrap();
    assert!(all(&any.read(&c).unwrap(), 2.0));
}

/// A transition that fails for another reason than its place says why, and leaves the stream in no capture.
#[test]
fn a_transition_that_fails_leaves_it_in_no_capture() {
    let Some((device, k)) = working(1) else { return };
    let status = device.captures();
    let mut setup = device.stream().unwrap();
    let x = filled(&mut setup, 1.0);
    let mut y = filled(&mut setup, 0.0);
    let mut any = any(&device, PhaseName::Prepared);
    let closed = |any: &AnyStream| {
        assert_eq!((any.phase(), any.window()), (PhaseName::NoCapture, None));
        assert!(!status.any_active());
    };

    if subject::refuse_next(&device, Call::Begin) {
        assert!(matches!(any.begin(), Err(Error::Driver { call: Call::Begin, .. })));
        closed(&any);
        any.prepare().unwrap();
    }

    device.evict(any.window().unwrap()).unwrap();
    assert!(matches!(any.begin(), Err(Error::Evicted { .. })));
    closed(&any);

    any.prepare().unwrap();
    any.begin().unwrap();
    let short = any.alloc::<f32>(4).unwrap();
    any.copy(&short, &mut y).unwrap_err();
    assert!(matches!(any.end(), Err(Error::LengthMismatch { .. })));
    closed(&any);

    any.prepare().unwrap();
    any.begin().unwrap();
    device.evict(any.window().unwrap()).unwrap();
    assert!(matches!(any.launch(&k.add1, grid(), (&x, &mut y, Len, Len)), Err(Error::Evicted { .. })));
    assert!(matches!(any.end(), Err(Error::Evicted { .. })));
    closed(&any);

    finish(&mut any, &k, &x, &mut y);
}

/// A refused `prepare` opened nothing that the next one would stumble over.
#[test]
fn a_prepare_that_is_refused_leaves_it_as_it_was() {
    let Some((device, k)) = working(1) else { return };
    let Some((elsewhere, _)) = working(1) else { return };
    let (foreign, ()) = elsewhere.stream().unwrap().record(|_| Ok(())).unwrap();
    let mut any = any(&device, PhaseName::NoCapture);
    let refused = any.prepare_with(CaptureOptions::new().share_arena(&foreign));
    assert!(matches!(refused, Err(Error::WrongDevice { .. })));
    assert_eq!((any.phase(), device.captures().active_count()), (PhaseName::NoCapture, 0));
    let x = filled(&mut any, 1.0);
    let mut y = filled(&mut any, 0.0);
    finish(&mut any, &k, &x, &mut y);
}

/// A server that drops a client's stream must not leave its window behind.
#[test]
fn dropping_it_closes_its_window() {
    let Some((device, _)) = working(1) else { return };
    for phase in PHASES {
        let mut dropped = any(&device, phase);
        let born = dropped.alloc::<f32>(4).unwrap();
        assert_eq!(device.captures().any_active(), phase != PhaseName::NoCapture);
        drop(dropped);
        assert!(!device.captures().any_active());
        let read = device.stream().unwrap().read(&born);
        assert_eq!(read.is_err(), phase == PhaseName::Recording);
    }
}

/// Streams that are kept in one map, each in a phase of its own, and driven from any thread.
#[test]
fn streams_of_all_phases_live_in_one_collection_and_move_between_threads() {
    let Some((device, k)) = working(2) else { return };
    let mut all_phases: Vec<AnyStream> = PHASES.into_iter().map(|phase| any(&device, phase)).collect();
    let nodes = std::thread::scope(|scope| {
        let k = &k;
        let threads = all_phases.iter_mut().map(|any| {
            scope.spawn(move || {
                let mut setup = any.device_handle().stream().unwrap();
                let x = filled(&mut setup, 1.0);
                let mut y = filled(&mut setup, 0.0);
                finish(any, k, &x, &mut y)
            })
        });
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(nodes, [1, 1, 1]);
    assert!(!device.captures().any_active());
}
