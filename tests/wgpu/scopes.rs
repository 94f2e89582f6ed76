//! Errors of wgpu's: each is told to whoever made the call, and to nobody else.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;

use dacapo::prelude::*;
use dacapo::wgpu::{EnqueueTexture, Wgpu, wgpu};
use dacapo::{Error, ErrorKind};

use crate::support::{Program, ramp, written};
use crate::texture::texture;

/// What the panics of this test carry.
struct Panicked;

/// Records a graph that wgpu refuses: with a texture that was destroyed. If it `panics`, the program has a scope open by then.
fn bad(program: &Program, destroyed: &wgpu::Texture, stream: &mut Stream<NoCapture, Wgpu>, panics: bool) {
    let scope = program.device.push_error_scope(wgpu::ErrorFilter::Validation);
    let recorded = stream.record(|work| {
        let mut x = work.alloc_scratch::<u32>(16)?;
        let copied = work.copy_from_texture(destroyed, &mut x);
        if panics {
            // Not `panic!`, which prints.
            resume_unwind(Box::new(Panicked));
        }
        copied
    });
    let error = recorded.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
    assert!(pollster::block_on(scope.pop()).is_none(), "an error of ours went to the program's scope");
}

/// Scopes that threads share are popped by the wrong one: a good graph fails for another thread's error, or a pop panics.
#[test]
fn wgpu_05_errors_stay_on_the_thread_that_made_them() {
    const ROUNDS: u32 = 1000;
    let program = crate::program!();
    let destroyed = texture(&program, wgpu::TextureFormat::R32Uint, [4, 4, 1], 1);
    destroyed.destroy();
    let device = program.open();
    let start = Barrier::new(2);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut stream = device.stream().unwrap();
            start.wait();
            for round in 0..ROUNDS {
                let panics = round == ROUNDS / 2;
                let run = AssertUnwindSafe(|| bad(&program, &destroyed, &mut stream, panics));
                match catch_unwind(run) {
                    Ok(()) => assert!(!panics),
                    Err(panic) if panic.is::<Panicked>() => assert!(panics),
                    Err(panic) => resume_unwind(panic),
                }
            }
        });
        threads.spawn(|| {
            let mut stream = device.stream().unwrap();
            let mut x = written(&mut stream, &ramp(64));
            start.wait();
            for round in 0..ROUNDS {
                let (mut graph, ()) = stream.record(|work| work.fill(&mut x, round)).unwrap();
                graph.replay(&mut stream).unwrap();
                if round % 100 == 0 {
                    assert_eq!(stream.read(&x).unwrap(), [round; 64]);
                }
            }
            assert_eq!(stream.read(&x).unwrap(), [ROUNDS - 1; 64]);
        });
    });
    device.check().unwrap();
    assert_eq!(program.errors(), 0);
}

/// A library that takes the program's handler away hides the program's own bugs from it.
#[test]
fn the_programs_handler_hears_of_its_own_errors_and_of_none_of_ours() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let bad_usage = wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::empty(),
        mapped_at_creation: false,
    };
    drop(program.device.create_buffer(&bad_usage));
    assert_eq!(program.errors(), 1);
    // Refused by wgpu itself, in calls of ours.
    let frame = texture(&program, wgpu::TextureFormat::R32Uint, [4, 4, 1], 1);
    frame.destroy();
    let mut x = stream.alloc::<u32>(16).unwrap();
    let error = stream.copy_from_texture(&frame, &mut x).unwrap_err();
    assert!(matches!(error, Error::Driver { .. }), "{error}");
    let destroyed = program.buffer(&[1, 2, 3]);
    destroyed.destroy();
    assert!(Buffer::<u32, Wgpu>::from_wgpu(&mut stream, destroyed).is_err());
    assert_eq!(program.errors(), 1);
    // In a thread without scopes, and after ours were popped.
    drop(program.device.create_buffer(&bad_usage));
    assert_eq!(program.errors(), 2);
    let y = written(&mut stream, &ramp(10));
    assert_eq!(stream.read(&y).unwrap(), ramp(10));
}
