//! Kernels of programs that promise nothing, on a device whose source is safe.

use dacapo::prelude::*;
use dacapo::{Error, LaunchUnchecked, Unchecked, UncheckedKernel};

/// One program for both: the host's closure, and a function that would trust its caller.
fn program() -> Program<(Out<u32>, u32), Unchecked> {
    let program =
        Program::<(Out<u32>, u32)>::new("fill").ptx_unchecked("a function that trusts its caller", "fill");
    let program = program.check(|_, (_, value)| if value < 10 { Ok(()) } else { Err("not below 10") });
    program.block(64, 1, 1).shared_memory(1024).host(|(x, value), _| x.fill(value))
}

/// Twice `value`, on any backend and in any phase.
///
/// # Safety
/// `kernel` fills the buffer that it is given.
unsafe fn step<B: Backend>(
    s: &mut impl Enqueue<B>,
    kernel: &UncheckedKernel<(Out<u32>, u32), B>,
    x: &mut Buffer<u32, B>,
    value: u32,
) -> dacapo::Result<()> {
    let grid = Grid::covering(x.len());
    // SAFETY: the caller's word.
    unsafe { s.launch_unchecked(kernel, grid, (x, 2 * value)) }
}

#[test]
fn an_unchecked_kernel_is_launched_and_recorded_like_any_other() {
    let (device, mut stream) = crate::device();
    let fill = program().load(&device).unwrap();
    assert_eq!((fill.name(), fill.block()), ("fill", [64, 1, 1]));
    let mut x = stream.alloc::<u32>(4).unwrap();
    // SAFETY: the host's source is safe.
    unsafe { step(&mut stream, &fill, &mut x, 2) }.unwrap();
    assert_eq!(stream.read(&x).unwrap(), [4; 4]);
    // SAFETY: the host's source is safe.
    let (mut graph, ()) = stream.record(|work| unsafe { step(work, &fill.clone(), &mut x, 3) }).unwrap();
    drop(fill);
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [6; 4]);
}

/// Only the promise is the caller's: what can be checked is.
#[test]
fn an_unchecked_launch_is_checked_for_all_that_can_be_checked() {
    let (device, mut stream) = crate::device();
    let fill = program().load(&device).unwrap();
    let mut x = stream.alloc::<u32>(4).unwrap();
    // SAFETY: the host's source is safe.
    let error = unsafe { step(&mut stream, &fill, &mut x, 5) }.unwrap_err();
    assert!(matches!(error, Error::CheckFailed { .. }), "{error}");
    assert!(stream.read(&x).is_err());
    let (other, mut elsewhere) = crate::device();
    let mut foreign = elsewhere.alloc::<u32>(4).unwrap();
    // SAFETY: the host's source is safe.
    let error = unsafe { step(&mut elsewhere, &fill, &mut foreign, 1) }.unwrap_err();
    assert!(matches!(error, Error::WrongDevice { object: "kernel", .. }), "{error}");
    drop(other);
}
