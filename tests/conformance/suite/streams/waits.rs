//! Waits: how long they last, what they wait for, and what a wait that gave up leaves behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dacapo::{Error, ErrorKind, Pass};
use parking_lot::Mutex;

use super::support::*;

/// A wait that could not give up would hang a server on one lost frame.
#[test]
fn every_wait_with_a_timeout_gives_up_and_may_be_tried_again() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let (mut graph, ()) = stream.record(|work| work.launch(&k.inc, grid(), (&mut c, Len))).unwrap();
    let gate = Gate::close(&mut stream);
    let ticket = graph.replay(&mut stream).unwrap();
    let waited = |error: Error, operation| {
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(
            matches!(error, Error::Timeout { operation: gave_up, waited } if gave_up == operation && waited >= SHORT)
        );
    };
    waited(stream.read_timeout(&c, SHORT).unwrap_err(), "read");
    waited(stream.sync_timeout(SHORT).unwrap_err(), "sync");
    waited(ticket.wait_timeout(SHORT).unwrap_err(), "wait");
    assert!(!ticket.is_done());
    gate.open();
    ticket.wait_timeout(PATIENCE).unwrap();
    assert!(ticket.is_done());
    stream.sync_timeout(PATIENCE).unwrap();
    assert!(all(&stream.read_timeout(&c, PATIENCE).unwrap(), 1.0));
}

/// A deadline beyond the end of the clock is no deadline, and not one that has passed.
#[test]
fn a_timeout_without_end_waits_until_it_is_done() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    stream.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
    assert!(all(&stream.read_timeout(&c, Duration::MAX).unwrap(), 1.0));
    stream.sync_timeout(Duration::MAX).unwrap();
}

/// A read that nobody waits for any more still writes somewhere: it must own where.
#[test]
fn a_read_that_timed_out_goes_on_and_disturbs_nobody() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let x = filled(&mut stream, 1.0);
    let gate = Gate::close(&mut stream);
    for _ in 0..3 {
        stream.read_timeout(&x, Duration::ZERO).unwrap_err();
    }
    drop(x);
    gate.open();
    let y = filled(&mut stream, 2.0);
    assert!(all(&stream.read(&y).unwrap(), 2.0));
    stream.sync().unwrap();
}

/// A wait for one stream that waited for all would make one slow stream everybody's.
#[test]
fn a_wait_waits_for_its_own_stream_only() {
    let Some((device, _)) = working(2) else { return };
    let (mut a, mut b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = filled(&mut a, 1.0);
    let mut y = filled(&mut b, 0.0);
    b.sync().unwrap();
    let gate = Gate::close(&mut b);
    b.fill(&mut y, 2.0).unwrap();
    a.sync().unwrap();
    assert!(all(&a.read(&x).unwrap(), 1.0));
    assert!(is_held_up(&mut b));
    gate.open();
    assert!(all(&b.read(&y).unwrap(), 2.0));
}

#[test]
fn read_into_fills_its_destination_or_leaves_it_alone() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let x = filled(&mut stream, 3.0);
    let mut into = vec![0.0f32; LEN];
    stream.read_into(&x, &mut into).unwrap();
    assert!(all(&into, 3.0));
    let mut short = [7.0f32; 4];
    let error = stream.read_into(&x, &mut short).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { source_len: LEN, target_len: 4, .. }));
    assert_eq!(short, [7.0; 4]);
    stream.read_into(x.slice(10..14).unwrap(), &mut short).unwrap();
    assert_eq!(short, [3.0; 4]);
}

/// A span that left out the first or the last operation would make slow work look fast.
#[test]
fn a_profile_spans_everything_that_its_closure_enqueued() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noting = || {
        let seen = seen.clone();
        move || seen.lock().push(Instant::now())
    };
    let ((pass, enqueue), profile) = stream
        .profile(|work| {
            let started = Instant::now();
            work.host_call(noting())?;
            work.launch(&k.inc, grid(), (&mut c, Len))?;
            work.host_call(noting())?;
            Ok((work.pass(), started.elapsed()))
        })
        .unwrap();
    assert_eq!(pass, Pass::Direct);
    let seen = seen.lock();
    assert_eq!(seen.len(), 2, "it waited for what it measured");
    assert!(profile.device >= seen[1] - seen[0]);
    assert!(profile.enqueue >= enqueue);
    assert!(all(&stream.read(&c).unwrap(), 1.0));
}

/// What was queued before is not what was asked about, also where it has not run yet.
#[test]
fn a_profile_leaves_out_what_was_enqueued_before_it() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let done = Arc::new(Mutex::new(None));
    let note = done.clone();
    stream
        .host_call(move || {
            // Long enough to be seen in a measurement that includes it.
            let started = Instant::now();
            while started.elapsed() < SHORT {}
            *note.lock() = Some(Instant::now());
        })
        .unwrap();
    let ((), profile) = stream.profile(|work| work.launch(&k.inc, grid(), (&mut c, Len))).unwrap();
    let since = done.lock().unwrap().elapsed();
    assert!(profile.device <= since);
}

#[test]
fn a_prepared_stream_is_profiled_too_and_stays_prepared() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut c = filled(&mut stream, 0.0);
    let mut prepared = stream.prepare().unwrap();
    prepared.profile(|work| work.launch(&k.inc, grid(), (&mut c, Len))).unwrap();
    assert!(all(&device.stream().unwrap().read(&c).unwrap(), 1.0), "it waited for what it measured");
    let mut recording = prepared.begin().unwrap();
    recording.launch(&k.inc, grid(), (&mut c, Len)).unwrap();
    let (graph, mut stream) = recording.end().unwrap();
    assert_eq!(graph.nodes(), 1);
    assert!(all(&stream.read(&c).unwrap(), 1.0));
}

#[test]
fn a_profile_whose_closure_fails_or_panics_leaves_a_usable_stream() {
    let Some((device, k)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let failed = stream.profile(|_| -> Result<(), Error> { Err(Error::step("no frame")) });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Step);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        stream.profile(|_| -> Result<(), Error> { panic!("a closure that gives up") })
    }));
    assert!(caught.is_err());
    assert_usable(&mut stream, &k);
}

/// A failure that nobody was told of comes out where the stream is asked whether all went well, and only there.
#[test]
fn a_late_failure_is_told_once_by_the_next_sync() {
    let Some((device, _)) = working(1) else { return };
    let mut stream = device.stream().unwrap();
    let mut x = filled(&mut stream, 0.0);
    let gate = Gate::close(&mut stream);
    fail_late(&mut stream, &mut x);
    assert!(matches!(stream.sync_timeout(SHORT), Err(Error::Timeout { .. })), "not known yet");
    gate.open();
    assert!(matches!(stream.sync(), Err(Error::CallbackPanicked { .. })));
    stream.sync().unwrap();
}
