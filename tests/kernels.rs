//! Kernels on the host: what they are given, and what a launch is checked for.

#[path = "kernels/checks.rs"]
mod checks;
#[cfg(feature = "cuda")]
#[path = "kernels/unchecked.rs"]
mod unchecked;

use dacapo::prelude::*;
use dacapo::{Error, ErrorKind, GridLimit};

fn device() -> (Device, Stream) {
    let device = Device::host().unwrap();
    let stream = device.stream().unwrap();
    (device, stream)
}

#[test]
fn an_output_that_does_not_divide_over_the_rows_is_refused_with_both_numbers_and_tainted() {
    let (device, mut stream) = device();
    let kernel = Program::<(Out<u32>,)>::new("rows").host_chunks(|_, _| ()).load(&device).unwrap();
    let mut y = stream.alloc::<u32>(10).unwrap();
    let error = stream.launch(&kernel, Grid::covering((2, 4)), (&mut y,)).unwrap_err();
    assert!(matches!(error, Error::Unchunkable { len: 10, outer: 4, .. }), "{error}");
    assert_eq!(stream.read(&y).unwrap_err().kind(), ErrorKind::Tainted);
    stream.fill(&mut y, 1).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [1; 10]);
}

#[test]
fn a_limit_that_a_launch_exceeds_is_named_with_both_numbers() {
    let (device, mut stream) = device();
    let mut y = stream.alloc::<u32>(4).unwrap();
    let program =
        |x, y, z| Program::<(Out<u32>,)>::new("k").block(x, y, z).host(|_, _| ()).load(&device).unwrap();
    let mut refused = |kernel: &Kernel<(Out<u32>,)>, grid| match stream.launch(kernel, grid, (&mut y,)) {
        Err(Error::Limit { limit, requested, allowed, .. }) => (limit, requested, allowed),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&program(1025, 1, 1), Grid::covering(4)), (GridLimit::BlockX, 1025, 1024));
    assert_eq!(refused(&program(1, 1, 65), Grid::covering(4)), (GridLimit::BlockZ, 65, 64));
    assert_eq!(refused(&program(64, 32, 1), Grid::covering(4)), (GridLimit::ThreadsPerBlock, 2048, 1024));
    assert_eq!(refused(&program(0, 1, 1), Grid::covering(4)), (GridLimit::BlockX, 0, 1024));
    assert_eq!(refused(&program(1, 1, 1), Grid::blocks((1, 65_536))), (GridLimit::BlocksY, 65_536, 65_535));
}
