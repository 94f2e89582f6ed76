//! Launch checks: what they are told, when they are called, and what a refusal leaves behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use dacapo::prelude::*;
use dacapo::{Error, ErrorKind, Extent};

use crate::device;

type Fill = Kernel<(Out<u32>, u32)>;

/// Fills with anything below 10, and counts what it is asked.
fn fill(device: &Device) -> (Fill, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let program = Program::<(Out<u32>, u32)>::new("fill").check(move |_grid, (_len, value)| {
        count.fetch_add(1, Ordering::Relaxed);
        if value < 10 { Ok(()) } else { Err(format!("{value} is not below 10")) }
    });
    (program.host(|(x, value), _| x.fill(value)).load(device).unwrap(), asked)
}

/// A kernel that ran all the same would do what the check is there to prevent; one that is only skipped would show stale bytes.
#[test]
fn a_launch_that_a_check_refuses_does_not_run_and_taints_its_outputs() {
    let (device, mut stream) = device();
    let (fill, _) = fill(&device);
    let mut x = stream.alloc::<u32>(4).unwrap();
    stream.launch(&fill, Grid::covering(4), (&mut x, 9)).unwrap();
    let error = stream.launch(&fill, Grid::covering(4), (&mut x, 10)).unwrap_err();
    assert!(
        matches!(&error, Error::CheckFailed { kernel, message } if &**kernel == "fill" && &**message == "10 is not below 10")
    );
    assert_eq!(error.kind(), ErrorKind::Misuse);
    let read = stream.read(&x).unwrap_err();
    assert!(matches!(read.root(), Error::CheckFailed { .. }), "{read}");
    stream.launch(&fill, Grid::covering(4), (&mut x, 3)).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [3; 4]);
}

/// A graph that misses the launch, or one that makes it, would both be wrong on every replay.
#[test]
fn a_launch_that_a_check_refuses_dooms_the_recording() {
    let (device, mut stream) = device();
    let (fill, _) = fill(&device);
    let mut x = stream.alloc::<u32>(4).unwrap();
    let refused = stream.record(|work| {
        work.launch(&fill, Grid::covering(4), (&mut x, 1))?;
        let error = work.launch(&fill, Grid::covering(4), (&mut x, 11)).unwrap_err();
        assert!(matches!(error, Error::CheckFailed { .. }), "{error}");
        Ok(())
    });
    assert!(matches!(refused.unwrap_err().root(), Error::CheckFailed { .. }));
    assert_eq!(stream.read(&x).unwrap(), [0; 4], "nothing ran, and bytes from outside are what they were");
}

/// Arguments are fixed at the recording: a check on every replay would cost what a graph is there to save.
#[test]
fn a_recorded_launch_is_checked_when_it_is_recorded_and_by_no_replay() {
    let (device, mut stream) = device();
    let (fill, asked) = fill(&device);
    let mut x = stream.alloc::<u32>(4).unwrap();
    let (mut graph, ()) = stream.record(|work| work.launch(&fill, Grid::covering(4), (&mut x, 5))).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    for _ in 0..3 {
        graph.replay(&mut stream).unwrap();
    }
    assert_eq!(stream.read(&x).unwrap(), [5; 4]);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    drop(stream.capture(|work| work.launch(&fill, Grid::covering(4), (&mut x, 5))).unwrap());
    assert_eq!(asked.load(Ordering::Relaxed), 3, "the warm-up launches, and is checked like any launch");
}

/// An entry that is another argument's would make every check wrong in silence.
#[test]
fn a_check_is_told_the_grid_and_for_each_parameter_what_is_known_of_it() {
    type S = (u8, In<f32>, Len<1>, Uniform<u16>, InOut<[f32; 4]>, Len<4>, Len<3>, Out<u64>, [f64; 2]);
    let (device, mut stream) = device();
    let (tell, told) = channel();
    let kernel = Program::<S>::new("all")
        .block(32, 2, 1)
        .check(move |grid: Extent, facts| {
            tell.send((grid.threads(), grid.blocks(), grid.block(), facts)).map_err(|_| "nobody listens")
        })
        .host(|_, _| ())
        .load(&device)
        .unwrap();
    let x = stream.alloc::<f32>(10).unwrap();
    let (mut y, mut z) = (stream.alloc::<[f32; 4]>(7).unwrap(), stream.alloc::<u64>(0).unwrap());
    let arguments = (3u8, x.slice(2..8).unwrap(), Len, &[1u16, 2, 3], &mut y, Len, Len, &mut z, [0.5, 2.0]);
    stream.launch(&kernel, Grid::covering((33, 5)), arguments).unwrap();
    let facts = (3, 6, 6, 3, 7, 7, 3, 0, [0.5, 2.0]);
    assert_eq!(told.recv().unwrap(), ([33, 5, 1], [2, 3, 1], [32, 2, 1], facts));
}

/// What a check is told of arguments that are wrong already would be nonsense.
#[test]
fn a_check_is_asked_only_about_launches_that_would_else_be_made() {
    let (device, mut stream) = device();
    let (fill, asked) = fill(&device);
    let mut x = stream.alloc::<u32>(4).unwrap();
    stream.launch(&fill, Grid::covering(0), (&mut x, 10)).unwrap();
    let error = stream.launch(&fill, Grid::blocks((1, 1 << 20)), (&mut x, 10)).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    let (_other, mut elsewhere) = crate::device();
    let mut foreign = elsewhere.alloc::<u32>(4).unwrap();
    let error = stream.launch(&fill, Grid::covering(4), (&mut foreign, 10)).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

/// A panic that passed through would leave the outputs as they were, and a window open.
#[test]
fn a_check_that_panics_is_an_error_in_every_phase() {
    let (device, mut stream) = device();
    let program = Program::<(Out<u32>, u32)>::new("odd").check(|_, (_, value)| {
        if value % 2 == 1 {
            Ok(())
        } else {
            assert_eq!(value, 1);
            Err("even")
        }
    });
    let odd = program.host(|(x, value), _| x.fill(value)).load(&device).unwrap();
    let mut x = stream.alloc::<u32>(4).unwrap();
    let error = stream.launch(&odd, Grid::covering(4), (&mut x, 2)).unwrap_err();
    assert!(matches!(&error, Error::CheckPanicked { message, .. } if message.contains("left: 2")), "{error}");
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(matches!(stream.read(&x).unwrap_err().root(), Error::CheckPanicked { .. }));
    let refused = stream.record(|work| work.launch(&odd, Grid::covering(4), (&mut x, 4)));
    assert!(matches!(refused.unwrap_err().root(), Error::CheckPanicked { .. }));
    assert!(!device.captures().any_active());
    stream.launch(&odd, Grid::covering(4), (&mut x, 5)).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [5; 4]);
}

/// What somebody promised of a kernel rests on the checks that it had: safe code must not take one away.
#[test]
fn checks_add_up_and_stay_with_every_clone() {
    let (device, mut stream) = device();
    let below = Program::<(Out<u32>, u32)>::new("both")
        .check(|_, (_, value)| if value < 10 { Ok(()) } else { Err("not below 10") });
    let both = below.clone().check(|_, (_, value)| if value > 5 { Ok(()) } else { Err("not above 5") });
    let both = both.host(|(x, value), _| x.fill(value)).load(&device).unwrap().clone();
    let below = below.host(|(x, value), _| x.fill(value)).load(&device).unwrap();
    let mut x = stream.alloc::<u32>(4).unwrap();
    let mut said = |kernel: &Fill, value| match stream.launch(kernel, Grid::covering(4), (&mut x, value)) {
        Err(Error::CheckFailed { message, .. }) => Some(message.to_string()),
        other => other.map(|()| None).unwrap(),
    };
    assert_eq!(said(&both, 10).as_deref(), Some("not below 10"));
    assert_eq!(said(&both, 5).as_deref(), Some("not above 5"));
    assert_eq!(said(&both, 7), None);
    assert_eq!(said(&below, 5), None);
}

/// A check that ran under a lock of ours would wait for itself here.
#[test]
fn a_check_may_use_the_device_itself() {
    let (device, mut stream) = device();
    let mut other = device.stream().unwrap();
    let limit = Arc::new(std::sync::Mutex::new(other.alloc::<u32>(1).unwrap()));
    other.write(&mut *limit.lock().unwrap(), &[7]).unwrap();
    let (device2, limit2) = (device.clone(), limit.clone());
    let program = Program::<(Out<u32>, u32)>::new("limited").check(move |_, (_, value)| {
        let read = device2.stream()?.read(&*limit2.lock().unwrap())?;
        if value <= read[0] { Ok(()) } else { Err(Error::step(format!("above {}", read[0]))) }
    });
    let limited = program.host(|(x, value), _| x.fill(value)).load(&device).unwrap();
    let mut x = stream.alloc::<u32>(4).unwrap();
    stream.launch(&limited, Grid::covering(4), (&mut x, 7)).unwrap();
    let (mut graph, ()) =
        stream.record(|work| work.launch(&limited, Grid::covering(4), (&mut x, 6))).unwrap();
    let error = stream.launch(&limited, Grid::covering(4), (&mut x, 8)).unwrap_err();
    assert!(error.to_string().ends_with("above 7"), "{error}");
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [6; 4]);
}
