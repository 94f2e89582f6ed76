//! Runs of launches that are long enough to be submitted by the device's thread, and what comes in between.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::time::Duration;

use dacapo::prelude::*;
use dacapo::wgpu::{Wgpu, wgpu};
use dacapo::{Error, Result};

use crate::support::{Add, Buf, LONG, Program, add, eventually, written};

/// On every kind of device more than two submissions have, and not a multiple of one.
const LAUNCHES: u32 = 4100;

/// Adds one so many times, of which each depends on the one before.
fn run(
    stream: &mut impl Enqueue<Wgpu>,
    add: &Kernel<Add, Wgpu>,
    x: &mut Buf<u32>,
    launches: u32,
) -> Result<()> {
    let grid = Grid::covering(x.len());
    (0..launches).try_for_each(|_| stream.launch(add, grid, (&mut *x, 1, Len)))
}

/// What the thread has not submitted yet is overtaken by whoever submits himself: a write, a read, a replay.
#[test]
fn wgpu_01_what_follows_a_long_run_comes_after_it() {
    let device = crate::device!();
    let (add, mut stream) = (add(&device), device.stream().unwrap());
    let mut x = written(&mut stream, &[0; 100]);
    let (mut graph, ()) = stream.record(|work| run(work, &add, &mut x, 3)).unwrap();
    let mut expected = 0;
    for launches in [LAUNCHES, 1, LAUNCHES / 2, 40] {
        run(&mut stream, &add, &mut x, launches).unwrap();
        graph.replay(&mut stream).unwrap();
        expected += launches + 3;
        assert_eq!(stream.read(&x).unwrap(), [expected; 100]);
        run(&mut stream, &add, &mut x, launches).unwrap();
        stream.write(x.slice_mut(..50).unwrap(), &[expected; 50]).unwrap();
        run(&mut stream, &add, &mut x, 1).unwrap();
        assert_eq!(stream.read(x.slice(..50).unwrap()).unwrap(), [expected + 1; 50]);
        assert_eq!(stream.read(x.slice(50..).unwrap()).unwrap(), [expected + launches + 1; 50]);
        stream.fill(&mut x, expected).unwrap();
    }
}

/// The order of streams is that of their submissions, of which the first is not made yet when the second stream goes on.
#[test]
fn streams_that_take_turns_on_one_buffer_see_each_others_long_runs() {
    let device = crate::device!();
    let add = add(&device);
    let mut streams: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut x = written(&mut streams[0], &[0; 64]);
    for stream in &mut streams {
        run(stream, &add, &mut x, LAUNCHES / 2).unwrap();
    }
    assert_eq!(streams[0].read(&x).unwrap(), [LAUNCHES / 2 * 3; 64]);
}

/// Threads that each leave their runs to the device's thread, which is one for all.
#[test]
fn long_runs_of_several_threads_are_all_complete() {
    let device = crate::device!();
    let add = add(&device);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut stream = device.stream().unwrap();
                let mut x = written(&mut stream, &[0; 64]);
                for round in 1..=3 {
                    run(&mut stream, &add, &mut x, LAUNCHES / 4).unwrap();
                    assert_eq!(stream.read(&x).unwrap(), [round * (LAUNCHES / 4); 64]);
                }
            });
        }
    });
}

/// The thread keeps what it has to submit when everybody else has gone.
#[test]
fn a_stream_that_is_dropped_after_a_long_run_has_run_it() {
    let device = crate::device!();
    let add = add(&device);
    let mut other = device.stream().unwrap();
    let mut x = written(&mut other, &[0; 64]);
    let mut stream = device.stream().unwrap();
    run(&mut stream, &add, &mut x, LAUNCHES).unwrap();
    drop(stream);
    assert_eq!(other.read(&x).unwrap(), [LAUNCHES; 64]);
}

/// The program submits what comes next by itself, and does not know of the thread.
#[test]
fn a_long_run_is_submitted_before_its_buffer_goes_back() {
    let program = crate::program!();
    let device = program.open();
    let (add, mut stream) = (add(&device), device.stream().unwrap());
    let mut x = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, program.buffer(&[0; 64])).unwrap();
    for round in 1..=3 {
        run(&mut stream, &add, &mut x, LAUNCHES).unwrap();
        let back = x.into_wgpu().unwrap();
        assert_eq!(program.words(&back), [round * LAUNCHES; 64]);
        x = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, back).unwrap();
    }
    assert_eq!(program.errors(), 0);
}

/// A device that its thread kept, or that the thread let go of too early.
#[test]
fn a_device_that_is_dropped_in_a_long_run_is_gone_soon_and_breaks_nothing() {
    for _ in 0..5 {
        let program = crate::program!();
        let device = program.open();
        let (add, mut stream) = (add(&device), device.stream().unwrap());
        let mut x = written(&mut stream, &[0; 64]);
        run(&mut stream, &add, &mut x, LAUNCHES).unwrap();
        drop((x, stream, add, device));
        let stays = program.stays();
        let Program { device, queue, errors, .. } = program;
        // The program's own device works on, with nothing of the library's in flight in the end.
        let idle = || device.poll(wgpu::PollType::Poll).is_ok_and(|status| status.is_queue_empty());
        assert!(eventually(idle));
        drop((queue, device));
        assert_eq!(errors.load(SeqCst), 0);
        // Their handler goes with the device, of which nobody is left that owns it.
        assert!(stays || eventually(|| Arc::strong_count(&errors) == 1));
    }
}

/// The callback runs inside a submission of what it lets go of, and waited for that.
#[test]
fn a_device_that_a_callback_of_the_programs_drops_has_run_what_it_was_given() {
    for round in 0..24 {
        let program = crate::program!();
        let device = program.open();
        let (add, mut stream) = (add(&device), device.stream().unwrap());
        let theirs = program.buffer(&[0; 64]);
        let mut x = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, theirs.clone()).unwrap();
        let launches = [3, LAUNCHES][round % 2];
        run(&mut stream, &add, &mut x, launches).unwrap();
        // Different moments between two looks of the thread that submits what is left over.
        std::thread::sleep(Duration::from_micros(round as u64 * 97));
        let (sender, receiver) = channel();
        program.queue.submit([]);
        program.queue.on_submitted_work_done(move || {
            drop((x, stream, add, device));
            sender.send(()).unwrap();
        });
        receiver.recv_timeout(LONG).unwrap();
        assert!(eventually(|| program.words(&theirs) == [launches; 64]));
        assert_eq!(program.errors(), 0);
    }
}

/// The thread finds the device gone, and whoever goes on has to be told.
#[test]
fn wgpu_05_a_device_destroyed_in_a_long_run_is_lost_to_everybody() {
    let program = crate::program!();
    let device = program.open();
    let (add, mut stream) = (add(&device), device.stream().unwrap());
    let mut x = written(&mut stream, &[0; 64]);
    run(&mut stream, &add, &mut x, LAUNCHES).unwrap();
    let destroyed = program.device.clone();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(move || destroyed.destroy());
        (0..10).try_for_each(|_| run(&mut stream, &add, &mut x, LAUNCHES))
    });
    let error = outcome.and_then(|()| stream.read(&x).map(drop)).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    drop((x, stream, device));
    assert_eq!(program.errors(), 0);
}
