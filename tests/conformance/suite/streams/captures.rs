//! `record` and `capture`: how often the closure runs, what comes out, and what an error or a panic leaves behind.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dacapo::{Error, ErrorKind, Order, Pass};

use super::support::*;

/// An error of the user's own.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("frame {0} is missing")]
struct Missing(u32);

/// A warm-up that did not execute would warm nothing, and a recording that did would count twice.
#[test]
fn capture_runs_its_closure_twice_and_only_the_first_run_executes() {
    let Some((device, k)) = working(2) else { return };
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let calls = Arc::new(AtomicUsize::new(0));
    let passes = RefCell::new(Vec::new());
    let status = device.captures();
    let id = stream.id();
    let (mut graph, ()) = stream
        .capture(|work| {
            assert!(status.is_capturing(id));
            passes.borrow_mut().push((work.pass(), status.any_recording()));
            let calls = calls.clone();
            work.host_call(move || {
                calls.fetch_add(1, Ordering::Relaxed);
            })?;
            work.launch(&k.inc, grid(), (&mut c, Len))
        })
        .unwrap();
    assert_eq!(*passes.borrow(), [(Pass::WarmUp, false), (Pass::Recording, true)]);
    stream.sync().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert!(all(&stream.read(&c).unwrap(), 1.0));
    graph.replay(&mut stream).unwrap();
    stream.sync().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert!(all(&stream.read(&c).unwrap(), 2.0));
}

/// What the warm-up returned belongs to memory that no replay writes.
#[test]
fn what_capture_returns_comes_from_the_recording() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let x = filled(&mut stream, 1.0);
    let mut runs = 0;
    let (mut graph, (run, out)) = stream
        .capture(|work| {
            runs += 1;
            let mut out = work.alloc::<f32>(LEN)?;
            work.launch(&k.add1, grid(), (&x, &mut out, Len, Len))?;
            Ok((runs, out))
        })
        .unwrap();
    assert_eq!((run, runs), (2, 2));
    assert!(matches!(stream.read(&out), Err(Error::NotReplayed)));
    graph.replay(&mut stream).unwrap();
    assert!(all(&stream.read(&out).unwrap(), 2.0));
}

/// A closure that could run twice could not be moved into.
#[test]
fn record_runs_its_closure_once_and_executes_nothing() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let moved_in = String::from("moved in and out");
    let (mut graph, (pass, text)) = stream
        .record(|work| {
            work.launch(&k.inc, grid(), (&mut c, Len))?;
            Ok((work.pass(), moved_in))
        })
        .unwrap();
    assert_eq!((pass, text.as_str()), (Pass::Recording, "moved in and out"));
    assert!(all(&stream.read(&c).unwrap(), 0.0));
    graph.replay(&mut stream).unwrap();
    assert!(all(&stream.read(&c).unwrap(), 1.0));
}

/// The short forms would be useless if they could say less than the long one.
#[test]
fn options_reach_the_graph_in_every_form() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let (mut x, mut y) = (filled(&mut stream, 0.0), filled(&mut stream, 0.0));
    let sequential = || CaptureOptions::new().order(Order::Sequential);
    let mut step = |work: &mut Work<'_>| {
        work.launch(&k.inc, grid(), (&mut x, Len))?;
        work.launch(&k.inc, grid(), (&mut y, Len))
    };
    let (free, ()) = stream.record(&mut step).unwrap();
    let (recorded, ()) = stream.record_with(sequential(), &mut step).unwrap();
    let (captured, ()) = stream.capture_with(sequential(), &mut step).unwrap();
    assert_eq!((free.edges(), recorded.edges(), captured.edges()), (0, 1, 1));
    let mut recording = stream.prepare_with(sequential()).unwrap().begin().unwrap();
    recording.launch(&k.inc, grid(), (&mut x, Len)).unwrap();
    recording.launch(&k.inc, grid(), (&mut y, Len)).unwrap();
    assert_eq!(recording.end().unwrap().0.edges(), 1);
}

/// A window left open by an early return would refuse the next capture, or record what was meant to run.
#[test]
fn an_error_in_either_pass_closes_the_window_and_is_the_one_that_was_returned() {
    for failing in [Pass::WarmUp, Pass::Recording] {
        let Some((device, k)) = working(1) else { return };
        let mut stream = device.stream().unwrap();
        let mut c = filled(&mut stream, 0.0);
        let mut runs = 0;
        let outcome = stream.capture(|work| {
            runs += 1;
            work.launch(&k.inc, grid(), (&mut c, Len))?;
            if work.pass() == failing { Err(Error::step(Missing(7))) } else { Ok(()) }
        });
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Step);
        assert_eq!(error.step_as::<Missing>(), Some(&Missing(7)));
        assert!(error.step_as::<std::fmt::Error>().is_none());
        assert_eq!(runs, if failing == Pass::WarmUp { 1 } else { 2 });
        assert!(!device.captures().any_active());
        assert!(all(&stream.read(&c).unwrap(), 1.0), "the warm-up ran, and nothing else");
        assert_usable(&mut stream, &k);
    }
}

/// A panic that somebody catches must not leave a device that believes that it is being captured.
#[test]
fn a_panic_in_either_pass_closes_the_window() {
    for failing in [Pass::WarmUp, Pass::Recording] {
        let Some((device, k)) = working(1) else { return };
        let mut stream = device.stream().unwrap();
        let mut c = filled(&mut stream, 0.0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            stream.capture(|work| {
                work.launch(&k.inc, grid(), (&mut c, Len))?;
                assert!(work.pass() != failing, "a step that gives up");
                Ok(())
            })
        }));
        assert!(caught.is_err());
        assert!(!device.captures().any_active());
        assert!(all(&stream.read(&c).unwrap(), 1.0), "the warm-up ran, and nothing else");
        assert_usable(&mut stream, &k);
    }
}

/// A step that ignores a refused launch would else become a graph that misses it.
#[test]
fn record_returns_a_failure_that_the_step_ignored() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let (x, mut y) = (stream.alloc::<f32>(8).unwrap(), stream.alloc::<f32>(4).unwrap());
    let outcome = stream.record(|work| {
        let _ = work.copy(&x, &mut y);
        Ok(())
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { source_len: 8, target_len: 4, .. }), "{error}");
    assert_usable(&mut stream, &k);
}

/// `Doomed` tells the step that something went wrong before; whoever called `record` wants to know what.
#[test]
fn record_returns_the_first_failure_where_the_step_stumbled_over_it_later() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let (x, mut y) = (stream.alloc::<f32>(8).unwrap(), stream.alloc::<f32>(4).unwrap());
    let outcome = stream.record(|work| {
        let _ = work.copy(&x, &mut y);
        let stumbled = work.fill(&mut y, 1.0);
        assert!(matches!(stumbled, Err(Error::Doomed { .. })));
        stumbled
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { .. }), "{error}");
    assert_usable(&mut stream, &k);
}

/// The cause travels with what it left unwritten, and whoever finds it there asks for the user's own error too.
#[test]
fn the_users_error_is_found_under_whatever_carries_it() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut born = None;
    let outcome = stream.record(|work| -> Result<(), Error> {
        born = Some(work.alloc::<f32>(4)?);
        Err(Error::step(Missing(3)))
    });
    assert_eq!(outcome.unwrap_err().step_as::<Missing>(), Some(&Missing(3)));
    let carried = stream.read(born.as_ref().unwrap()).unwrap_err();
    assert!(matches!(carried, Error::NeverSealed { .. }), "{carried}");
    assert_eq!(carried.step_as::<Missing>(), Some(&Missing(3)));
    let mut copy = stream.alloc::<f32>(4).unwrap();
    stream.copy(born.as_ref().unwrap(), &mut copy).unwrap_err();
    let carried = stream.read(&copy).unwrap_err();
    assert!(matches!(carried, Error::Tainted { .. }), "{carried}");
    assert_eq!(carried.step_as::<Missing>(), Some(&Missing(3)));
}

/// The caller hears what the step has to say; the bytes keep why nothing wrote them.
#[test]
fn a_users_error_after_an_ignored_failure_comes_out_and_the_first_failure_stays_with_the_bytes() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let (x, mut y) = (stream.alloc::<f32>(8).unwrap(), stream.alloc::<f32>(4).unwrap());
    let mut born = None;
    let outcome = stream.record(|work| -> Result<(), Error> {
        born = Some(work.alloc::<f32>(4)?);
        let _ = work.copy(&x, &mut y);
        Err(Error::step(Missing(1)))
    });
    assert_eq!(outcome.unwrap_err().step_as::<Missing>(), Some(&Missing(1)));
    let carried = stream.read(born.as_ref().unwrap()).unwrap_err();
    assert!(matches!(carried.root(), Error::LengthMismatch { .. }), "{carried}");
}

/// A user's error that wraps ours comes out whole: unwrapping it would lose what the user had to say.
#[test]
fn a_users_error_around_one_of_ours_is_kept_whole() {
    #[derive(Debug, thiserror::Error)]
    #[error("layer {layer}")]
    struct InLayer {
        layer: u32,
        source: Error,
    }
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let (x, mut y) = (stream.alloc::<f32>(8).unwrap(), stream.alloc::<f32>(4).unwrap());
    let outcome = stream.record(|work| {
        let copied = work.copy(&x, &mut y);
        copied.map_err(|source| Error::step(InLayer { layer: 3, source }))
    });
    let error = outcome.unwrap_err();
    let mine = error.step_as::<InLayer>().unwrap();
    assert_eq!(mine.layer, 3);
    assert!(matches!(mine.source, Error::LengthMismatch { source_len: 8, .. }));
    assert!(std::error::Error::source(&error).is_some_and(|source| source.to_string() == "layer 3"));
    assert_usable(&mut stream, &k);
}
