//! What only the host can be asked for, with what the suite uses: calls from inside its kernels, a driver that refuses, and
//! a device that is stepped.

mod fresh;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use dacapo::host::{HostOptions, Severity, Stepper};
use dacapo::{Call, Error};

use super::suite::callbacks_inside::{
    Belongings, Outcomes, all_are_refused, call_back, call_everything, objects,
};
use super::suite::property::{self, driver::Mode};
use super::suite::support::*;

/// A device with `slots` slots on which nothing runs before the test says so.
fn stepped(slots: usize) -> (Device, Stepper) {
    Device::stepped(DeviceOptions::new().max_streams(slots)).unwrap()
}

/// A kernel runs on the device's thread as a callback does: a call that waits in there waits for itself.
#[test]
fn every_call_inside_a_kernel_is_refused_too() {
    let device = device(2).unwrap();
    let mut s = device.stream().unwrap();
    let mut y = s.alloc::<f32>(LEN).unwrap();
    let belongings = Belongings::new(&device);
    belongings.ticket.wait().unwrap();
    let belongings = Mutex::new(Some(belongings));
    let (tell, told) = channel();
    let nosy = Program::<(Out<f32>,)>::new("nosy").host(move |(y,), _| {
        let mut outcomes = Outcomes::default();
        drop(call_everything(belongings.lock().unwrap().take().expect("launched once"), &mut outcomes));
        y.fill(1.0);
        tell.send(outcomes).unwrap();
    });
    let nosy = nosy.load(&device).unwrap();
    s.launch(&nosy, grid(), (&mut y,)).unwrap();
    all_are_refused(told.recv().unwrap());
    assert!(all(&s.read(&y).unwrap(), 1.0));
    device.check().unwrap();
}

/// A graph's callbacks and the chunks of a kernel run on threads of other pools, which must know where they are too.
#[test]
fn calls_are_refused_on_every_thread_that_works_for_the_device() {
    let options: DeviceOptions = DeviceOptions::new().max_streams(2).backend(HostOptions::new().threads(3));
    let device = Device::open(options).unwrap();
    let mut s = device.stream().unwrap();
    let (mut x, mut y) = (s.alloc::<f32>(LEN).unwrap(), s.alloc::<f32>(LEN).unwrap());
    let allowed = Arc::new(AtomicUsize::new(0));
    let nosy = || {
        let (device, allowed) = (device.clone(), allowed.clone());
        move || {
            let refused = matches!(device.stream(), Err(Error::InCallback { .. }));
            allowed.fetch_add(usize::from(!refused), Ordering::Relaxed);
        }
    };
    let inside = nosy();
    let chunks = Program::<(Out<f32>,)>::new("chunks").host_chunks(move |(out,), _| {
        inside();
        out.fill(1.0);
    });
    let chunks = chunks.load(&device).unwrap();
    let (mut graph, ()) = s
        .record(|w| {
            for _ in 0..50 {
                w.host_call_with(Touches::new().writes(&mut x), nosy())?;
                w.host_call_with(Touches::new().writes(&mut y), nosy())?;
            }
            w.launch(&chunks, grid(), (&mut x,))?;
            w.launch(&chunks, grid(), (&mut y,))
        })
        .unwrap();
    for _ in 0..20 {
        graph.replay(&mut s).unwrap().wait().unwrap();
    }
    assert!(all(&s.read(&x).unwrap(), 1.0) && all(&s.read(&y).unwrap(), 1.0));
    assert_eq!(allowed.load(Ordering::Relaxed), 0);
}

/// Who steps a device from inside its own work would run the queue within itself.
#[test]
fn stepping_from_inside_a_callback_runs_nothing() {
    let (device, stepper) = stepped(2);
    let (mut s, mut other) = (device.stream().unwrap(), device.stream().unwrap());
    other.host_call(|| {}).unwrap();
    let (id, other_id, inside) = (s.id(), other.id(), stepper.clone());
    let told = call_back(&mut s, move || {
        let steps = (inside.step(id), inside.step(other_id));
        (steps, inside.run(other_id), inside.run_all(), inside.pending(other_id))
    });
    stepper.run(s.id());
    let (ran, _) = told.recv().unwrap();
    assert_eq!(ran, ((false, false), 0, 0, 1));
    assert!(stepper.step(other.id()));
}

/// A finaliser runs wherever its owner goes away. One that asked the driver, or took a lock whose holder waits for the
/// callback, would stop the device for ever.
#[test]
fn dropping_anything_inside_a_callback_neither_waits_nor_calls_the_driver() {
    let (device, stepper) = stepped(2);
    let mut s = device.stream().unwrap();
    s.host_call(|| {}).unwrap();
    let baseline = Baseline::take(&mut s);
    let owned = objects(&device);
    let told = call_back(&mut s, move || drop(owned));
    stepper.run(s.id());
    assert_eq!(told.recv().unwrap(), ((), Some(0)));
    assert!(!device.captures().any_active(), "their windows are closed");
    stepper.run_all();
    assert!(baseline.returns(&mut s), "{:?}", device.memory_usage());
    device.check().unwrap();
}

/// A stepped device whose last handle goes in its own callback leaves nobody to run what is queued behind it: that is given
/// up, not lost.
#[test]
fn a_device_dropped_inside_its_own_callback_gives_up_what_nobody_can_step_any_more() {
    let (device, stepper) = stepped(1);
    let mut s = device.stream().unwrap();
    let mut buffer = s.alloc::<f32>(LEN).unwrap();
    s.fill(&mut buffer, 1.0).unwrap();
    s.sync().unwrap();
    let owned = (device.clone(), device.stream().unwrap());
    let told = call_back(&mut s, move || drop(owned));
    let mut behind = s.read_async(&buffer).unwrap();
    let id = s.id();
    drop((device, s, buffer));
    assert!(stepper.step(id));
    assert_eq!(told.recv().unwrap(), ((), Some(0)));
    assert!(poll(&mut behind).expect("resolved, and not for ever pending").is_err());
    assert_eq!(stepper.run_all(), 0);
}

/// ferrotorch: a guard's drop swallows the failure of the end (E14).
#[test]
fn e14_a_failure_of_the_end_is_its_outcome_and_stays_with_the_buffers_that_the_window_made() {
    let device = device(1).unwrap();
    let k = Kernels::load(&device);
    let mut s = device.stream().unwrap();
    device.faults().fail_nth(Call::End, 1, Severity::Call);
    let mut kept = None;
    let error = refused(s.record(|w| {
        let born = kept.insert(w.alloc::<f32>(LEN)?);
        w.launch(&k.fill, grid(), (born, 1.0, Len))
    }));
    assert!(matches!(error, Error::Driver { call: Call::End, .. }), "{error}");
    let carried = refused(s.read(&kept.unwrap()));
    assert!(matches!(carried, Error::NeverSealed { .. }), "{carried}");
    assert!(matches!(carried.root(), Error::Driver { call: Call::End, .. }), "{carried}");
}

/// The suite's random programs, which also say when queued work runs, and what the driver refuses meanwhile.
#[test]
fn a_stepped_device_answers_as_if_every_operation_ran_in_program_order() {
    property::check(Mode::Stepped, 2_600, 100_000);
}
