//! Uploads that fail: the launch says why, and the next one with the same table works.

use dacapo::host::Severity;
use dacapo::prelude::*;
use dacapo::{Call, Error};

use crate::support::{Baseline, stepped};
use crate::{N, device, launch, repeated, spread, table, try_launch, uploads};

/// A table that is in the cache without ever having been uploaded would spoil every launch that brings it.
#[test]
fn a_refused_upload_fails_its_launch_and_stays_in_no_cache() {
    for warm_up in [false, true] {
        let device = device(1);
        let (mut stream, k) = (device.stream().unwrap(), spread(&device));
        let mut out = stream.alloc::<u32>(N).unwrap();
        let baseline = Baseline::take(&mut stream);
        device.faults().fail_nth(Call::Write, 1, Severity::Call);
        let mut prepared = warm_up.then(|| device.stream().unwrap().prepare().unwrap());
        let args = (&table(1), &mut out);
        let outcome = match &mut prepared {
            Some(prepared) => prepared.launch(&k, Grid::covering(N), args),
            None => stream.launch(&k, Grid::covering(N), args),
        };
        let refused = |error: &Error| matches!(error, Error::Driver { call: Call::Write, .. });
        assert!(refused(&outcome.unwrap_err()));
        assert!(refused(stream.read(&out).unwrap_err().root()), "the output carries the cause");
        match &mut prepared {
            Some(prepared) => launch(prepared, &k, &table(1), &mut out),
            None => launch(&mut stream, &k, &table(1), &mut out),
        }
        assert_eq!(stream.read(&out).unwrap(), repeated(&table(1)));
        drop(prepared);
        assert!(baseline.returns(&mut stream));
    }
}

/// The same where the device meets the fault, after the call returned.
#[test]
fn an_upload_that_fails_late_is_made_again() {
    let (device, stepper, _) = stepped(1);
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut outs: Vec<_> = (0..3).map(|_| stream.alloc::<u32>(N).unwrap()).collect();
    stepper.run_all();
    device.faults().fail_nth(Call::Execute, 1, Severity::Call);
    launch(&mut stream, &k, &table(1), &mut outs[0]);
    launch(&mut stream, &k, &table(1), &mut outs[1]);
    assert_eq!(uploads(&device), 1);
    stepper.run_all();
    launch(&mut stream, &k, &table(1), &mut outs[2]);
    assert_eq!(uploads(&device), 2, "what is known to have failed is no table");
    for out in &outs[..2] {
        let error = stream.read(out).unwrap_err();
        assert!(matches!(error.root(), Error::Driver { call: Call::Execute, .. }), "{error}");
    }
    assert_eq!(stream.read(&outs[2]).unwrap(), repeated(&table(1)));
    launch(&mut stream, &k, &table(1), &mut outs[0]);
    assert_eq!(uploads(&device), 2);
    assert_eq!(stream.read(&outs[0]).unwrap(), repeated(&table(1)));
}

/// A recording that took the failed table of a launch before it would never work.
#[test]
fn a_recording_does_not_find_a_table_whose_upload_failed() {
    let (device, stepper, _) = stepped(1);
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    stepper.run_all();
    device.faults().fail_nth(Call::Execute, 1, Severity::Call);
    launch(&mut stream, &k, &table(1), &mut out);
    stepper.run_all();
    let (mut graph, ()) = stream.record(|work| try_launch(work, &k, &table(1), &mut out)).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&out).unwrap(), repeated(&table(1)));
}

/// A graph without its constants would read what was there before.
#[test]
fn a_refused_upload_of_the_constants_fails_the_end() {
    let device = device(1);
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let baseline = Baseline::take(&mut stream);
    device.faults().fail_nth(Call::Write, 1, Severity::Call);
    let mut recording = stream.prepare().unwrap().begin().unwrap();
    launch(&mut recording, &k, &table(1), &mut out);
    let born = recording.alloc::<u32>(N).unwrap();
    let (mut stream, error) = recording.end().unwrap_err().into_parts();
    assert!(matches!(error, Error::Driver { call: Call::Write, .. }), "{error}");
    assert!(matches!(stream.read(&born).unwrap_err(), Error::NeverSealed { .. }));
    drop(born);
    assert_eq!(stream.read(&out).unwrap(), [0; N], "bytes from outside are what they were");
    assert!(baseline.returns(&mut stream));
    let (mut graph, ()) = stream.record(|work| try_launch(work, &k, &table(1), &mut out)).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&out).unwrap(), repeated(&table(1)));
    drop(graph);
    assert!(baseline.returns(&mut stream));
}

/// What was uploaded for a graph that then cannot be made must not stay.
#[test]
fn an_end_that_fails_after_the_upload_leaves_nothing() {
    for call in [Call::Seal, Call::Allocate, Call::End] {
        let device = device(1);
        let (mut stream, k) = (device.stream().unwrap(), spread(&device));
        let mut out = stream.alloc::<u32>(N).unwrap();
        let baseline = Baseline::take(&mut stream);
        let mut recording = stream.prepare().unwrap().begin().unwrap();
        launch(&mut recording, &k, &table(1), &mut out);
        let mut temporary = recording.alloc_scratch::<u32>(1 << 20).unwrap();
        launch(&mut recording, &k, &table(2), &mut temporary);
        drop(temporary);
        device.faults().fail_all(call, Severity::Call);
        let (mut stream, error) = recording.end().unwrap_err().into_parts();
        assert!(matches!(error, Error::Driver { call: met, .. } if met == call), "{error}");
        device.faults().clear();
        assert!(baseline.returns(&mut stream), "{call}");
    }
}

/// The device meets the fault after `end` returned: no replay runs on bytes that never came, and a new recording works.
#[test]
fn constants_that_fail_late_fail_every_replay_with_the_cause() {
    let (device, stepper, _) = stepped(1);
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    stepper.run_all();
    device.faults().fail_nth(Call::Execute, 1, Severity::Call);
    let (mut graph, ()) = stream.record(|work| try_launch(work, &k, &table(1), &mut out)).unwrap();
    for _ in 0..2 {
        graph.replay(&mut stream).unwrap();
        let error = stream.read(&out).unwrap_err();
        assert!(matches!(error.root(), Error::Driver { call: Call::Execute, .. }), "{error}");
    }
    assert!(stream.sync().is_err(), "the stream hears of it once");
    stream.sync().unwrap();
    let (mut graph, ()) = stream.record(|work| try_launch(work, &k, &table(1), &mut out)).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&out).unwrap(), repeated(&table(1)));
}

/// A lost device is told by whoever meets the loss.
#[test]
fn a_sticky_fault_at_an_upload_loses_the_device() {
    let device = device(1);
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    device.faults().fail_nth(Call::Write, 1, Severity::Sticky);
    let outcome = stream.launch(&k, Grid::covering(N), (&table(1), &mut out));
    assert!(matches!(outcome.unwrap_err(), Error::DeviceLost { .. }));
    let again = stream.launch(&k, Grid::covering(N), (&table(1), &mut out));
    assert!(matches!(again.unwrap_err(), Error::DeviceLost { .. }));
}
