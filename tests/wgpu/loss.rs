//! A device that is lost while it is used.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use dacapo::prelude::*;
use dacapo::{Error, ErrorKind};

use crate::support::{Gate, LONG, eventually, ramp, within_long, written};

/// A future that nobody resolves hangs its task for ever: the callback that was to do it is not called on a lost device.
#[test]
fn wgpu_04_a_read_behind_a_gate_is_told_that_the_device_was_destroyed() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(1000));
    let gate = Gate::close(&mut stream).unwrap();
    let read = stream.read_async(&x).unwrap();
    program.device.destroy();
    let error = within_long(read).expect("the read was told").unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    gate.open();
    drop((x, stream, device));
    assert_eq!(program.errors(), 0);
}

/// wgpu grants mappings on a device that was destroyed meanwhile, and takes the memory away before it says so.
#[test]
fn wgpu_04_reads_in_flight_end_right_or_lost_when_the_device_is_destroyed() {
    for round in 0..20 {
        let program = crate::program!();
        if round == 4 && program.stays() {
            return;
        }
        let device = program.open();
        let mut streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
        let mut reads = Vec::new();
        for stream in &mut streams {
            let x = written(stream, &ramp(10_000));
            reads.extend((0..5).map(|_| stream.read_async(&x).unwrap()));
        }
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_micros(50 * round));
        }
        program.device.destroy();
        for read in reads {
            match within_long(read).expect("the read came to an end") {
                Ok(bytes) => assert_eq!(bytes, ramp(10_000)),
                Err(error) => assert!(matches!(error, Error::DeviceLost { .. }), "{error}"),
            }
        }
        drop((streams, device));
        assert_eq!(program.errors(), 0);
    }
}

/// A reader that went away left a buffer behind that was still to be mapped, and the next read of that size took it.
#[test]
fn wgpu_04_reads_that_nobody_waits_for_give_their_memory_back() {
    let device = crate::device!();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(1000));
    for round in 0..10 {
        let gate = Gate::close(&mut stream).unwrap();
        let reads: Vec<_> = (0..10).map(|_| stream.read_async(&x).unwrap()).collect();
        if round % 2 == 0 {
            drop(reads);
            gate.open();
        } else {
            gate.open();
            drop(reads);
        }
    }
    for round in 0..100u32 {
        stream.fill(&mut x, round).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [round; 1000]);
    }
}

/// Silence is what wgpu has for calls on a lost device: buffers that are none, submissions that never run.
#[test]
fn every_call_on_a_destroyed_device_says_that_it_is_lost() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(100));
    let (mut graph, ()) = stream.record(|work| work.fill(&mut x, 3)).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [3; 100]);
    program.device.destroy();
    let lost = |error: Error| assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    // A call that only enqueues may not know yet; one that has an answer does.
    lost(stream.read_timeout(&x, LONG).unwrap_err());
    lost(device.check().unwrap_err());
    lost(stream.fill(&mut x, 4).unwrap_err());
    lost(stream.alloc::<u32>(1 << 20).unwrap_err());
    lost(stream.sync_timeout(LONG).unwrap_err());
    lost(graph.replay(&mut stream).unwrap_err());
    lost(device.stream().unwrap_err());
    drop((graph, x, stream, device));
    assert_eq!(program.errors(), 0);
}

/// Work that was enqueued before anybody noticed was taken for done.
#[test]
fn a_sync_after_silent_losses_does_not_say_that_all_is_well() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(100));
    stream.sync().unwrap();
    program.device.destroy();
    // Each of these may be refused; what is not must not be believed.
    let _ = (stream.fill(&mut x, 1), stream.write(&mut x, &[2; 100]));
    let error = stream.sync_timeout(LONG).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
}

/// A program that recreates its device in its own callback would never do so.
#[test]
fn the_programs_own_callback_hears_of_the_loss() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(100));
    program.device.destroy();
    stream.read_timeout(&x, LONG).unwrap_err();
    drop((x, stream, device));
    let poll = || program.device.poll(wgpu_poll()).is_ok();
    assert!(eventually(|| poll() && program.losses.load(SeqCst) == 1));
}

fn wgpu_poll() -> dacapo::wgpu::wgpu::PollType {
    dacapo::wgpu::wgpu::PollType::Poll
}
