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

/// The macros that make signatures and arguments stop at 32; one that stopped earlier shows at the last parameter.
#[test]
fn a_kernel_takes_up_to_32_parameters() {
    type S = (
        In<u32>,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        Out<u32>,
    );
    let (device, mut stream) = device();
    let sum = Program::<S>::new("sum")
        .host(
            |(
                x,
                a1,
                a2,
                a3,
                a4,
                a5,
                a6,
                a7,
                a8,
                a9,
                a10,
                a11,
                a12,
                a13,
                a14,
                a15,
                a16,
                a17,
                a18,
                a19,
                a20,
                a21,
                a22,
                a23,
                a24,
                a25,
                a26,
                a27,
                a28,
                a29,
                a30,
                y,
            ),
             _| {
                y[0] = x[0]
                    + a1
                    + a2
                    + a3
                    + a4
                    + a5
                    + a6
                    + a7
                    + a8
                    + a9
                    + a10
                    + a11
                    + a12
                    + a13
                    + a14
                    + a15
                    + a16
                    + a17
                    + a18
                    + a19
                    + a20
                    + a21
                    + a22
                    + a23
                    + a24
                    + a25
                    + a26
                    + a27
                    + a28
                    + a29
                    + a30
            },
        )
        .load(&device)
        .unwrap();
    let mut x = stream.alloc::<u32>(1).unwrap();
    let mut y = stream.alloc::<u32>(1).unwrap();
    stream.write(&mut x, &[1000]).unwrap();
    stream
        .launch(
            &sum,
            Grid::covering(1),
            (
                &x, 1u32, 2u32, 3u32, 4u32, 5u32, 6u32, 7u32, 8u32, 9u32, 10u32, 11u32, 12u32, 13u32, 14u32,
                15u32, 16u32, 17u32, 18u32, 19u32, 20u32, 21u32, 22u32, 23u32, 24u32, 25u32, 26u32, 27u32,
                28u32, 29u32, 30u32, &mut y,
            ),
        )
        .unwrap();
    assert_eq!(stream.read(&y).unwrap(), [1000 + 30 * 31 / 2]);
}

/// A scalar of any plain-data type, also one whose bytes would be misaligned where they are packed.
#[test]
fn scalars_of_any_plain_data_type_arrive_as_they_were() {
    #[derive(Clone, Copy, PartialEq, Debug, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C)]
    struct Camera {
        at: [f32; 3],
        id: u32,
    }
    let (device, mut stream) = device();
    let kernel = Program::<(u8, Camera, u64, Out<f64>)>::new("scalars")
        .host(|(a, camera, b, out), _| {
            out[0] = f64::from(a) + f64::from(camera.at[2]) + f64::from(camera.id) + b as f64;
        })
        .load(&device)
        .unwrap();
    let mut out = stream.alloc::<f64>(1).unwrap();
    let camera = Camera { at: [0.0, 0.0, 0.5], id: 7 };
    stream.launch(&kernel, Grid::covering(1), (3u8, camera, 1u64 << 40, &mut out)).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [3.0 + 0.5 + 7.0 + (1u64 << 40) as f64]);
}

/// Chunks that overlapped or missed a row would show here as rows counted twice or not at all.
#[test]
fn a_kernel_in_chunks_sees_every_row_of_every_output_once() {
    let (device, mut stream) = device();
    let kernel = Program::<(In<u32>, InOut<u32>, InOut<u8>)>::new("rows")
        .host_chunks(|(x, rows, marks), chunk| {
            let width = chunk.grid().width();
            assert_eq!((rows.len(), marks.len()), (chunk.rows().len() * width, chunk.rows().len()));
            for (at, row) in chunk.rows().enumerate() {
                marks[at] += 1;
                (0..width).for_each(|i| rows[at * width + i] += x[row * width + i]);
            }
        })
        .load(&device)
        .unwrap();
    let (width, height) = (3, 1543);
    let data: Vec<u32> = (0..width * height).map(|i| i as u32).collect();
    let mut x = stream.alloc::<u32>(width * height).unwrap();
    let mut y = stream.alloc::<u32>(width * height).unwrap();
    let mut marks = stream.alloc::<u8>(height).unwrap();
    stream.write(&mut x, &data).unwrap();
    stream.launch(&kernel, Grid::covering((width, height)), (&x, &mut y, &mut marks)).unwrap();
    assert_eq!(stream.read(&y).unwrap(), data);
    assert_eq!(stream.read(&marks).unwrap(), vec![1; height]);
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

#[test]
fn a_program_without_a_source_says_what_to_add() {
    let (device, _stream) = device();
    let error = Program::<(Out<u32>,)>::new("bare").load(&device).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("`bare`") && error.to_string().contains(".host(..)"), "{error}");
}

#[test]
fn parts_of_one_buffer_may_be_input_and_output_of_one_launch() {
    let (device, mut stream) = device();
    let add1 = Program::<(In<u32>, Out<u32>)>::new("add1")
        .host(|(x, y), _| y.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1))
        .load(&device)
        .unwrap();
    let mut x = stream.alloc::<u32>(8).unwrap();
    stream.fill(&mut x, 4).unwrap();
    let (left, mut right) = x.split_at_mut(4).unwrap();
    stream.launch(&add1, Grid::covering(4), (&left, &mut right)).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [4, 4, 4, 4, 5, 5, 5, 5]);
}
