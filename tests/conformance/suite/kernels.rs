//! Kernels: what they are given, and what a launch is checked for.

mod indirect;

use dacapo::{Error, ErrorKind, GridLimit};

use super::support::*;
use super::zoo;

fn device_and_stream() -> Option<(Device, Stream)> {
    let device = device(2)?;
    let stream = device.stream().unwrap();
    Some((device, stream))
}

/// The macros that make signatures and arguments stop at 32; one that stopped earlier shows at the last parameter.
#[test]
fn a_kernel_takes_up_to_32_parameters() {
    let Some((device, mut stream)) = device_and_stream() else { return };
    let sum = zoo::sum_of_28().load(&device).unwrap();
    let mut x = stream.alloc::<u32>(1).unwrap();
    let mut y = stream.alloc::<u32>(1).unwrap();
    stream.write(&mut x, &[1000]).unwrap();
    let args = (
        &x, 1u32, 2u32, 3u32, 4u32, 5u32, 6u32, 7u32, 8u32, 9u32, 10u32, 11u32, 12u32, 13u32, 14u32, 15u32,
        16u32, 17u32, 18u32, 19u32, 20u32, 21u32, 22u32, 23u32, 24u32, 25u32, 26u32, 27u32, 28u32, &mut y,
        Len, Len,
    );
    stream.launch(&sum, Grid::covering(1), args).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [1000 + 28 * 29 / 2]);
}

/// A scalar of any plain-data type, also one whose bytes would be misaligned where they are packed.
#[test]
fn scalars_of_any_plain_data_type_arrive_as_they_were() {
    let Some((device, mut stream)) = device_and_stream() else { return };
    if !subject::NUMBERS_OF_EVERY_SIZE {
        assert_eq!(zoo::scalars().load(&device).unwrap_err().kind(), ErrorKind::Unsupported);
        return;
    }
    let kernel = zoo::scalars().load(&device).unwrap();
    let mut out = stream.alloc::<f64>(1).unwrap();
    let camera = zoo::Camera { at: [0.0, 0.0, 0.5], id: 7 };
    stream.launch(&kernel, Grid::covering(1), (3u8, camera, 1u64 << 40, &mut out, Len)).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [3.0 + 0.5 + 7.0 + (1u64 << 40) as f64]);
}

/// A shader aligns a struct to more bytes than the host does.
#[test]
fn a_scalar_that_is_a_struct_arrives_between_others_as_it_was() {
    let Some((device, mut stream)) = device_and_stream() else { return };
    let kernel = zoo::scalars_of_words().load(&device).unwrap();
    let mut out = stream.alloc::<f32>(1).unwrap();
    let camera = zoo::Camera { at: [1e10, 1e20, 0.5], id: 7 };
    stream.launch(&kernel, Grid::covering(1), (3.25f32, camera, 100u32, &mut out, Len)).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [3.25 + 0.5 + 107.0]);
}

/// Chunks that overlapped or missed a row would show here as rows counted twice or not at all.
#[test]
fn a_kernel_in_chunks_sees_every_row_of_every_output_once() {
    let Some((device, mut stream)) = device_and_stream() else { return };
    let kernel = zoo::rows().load(&device).unwrap();
    let (width, height) = (3, 1543);
    let data: Vec<u32> = (0..width * height).map(|i| i as u32).collect();
    let mut x = stream.alloc::<u32>(width * height).unwrap();
    let mut y = stream.alloc::<u32>(width * height).unwrap();
    let mut marks = stream.alloc::<u8>(height).unwrap();
    stream.write(&mut x, &data).unwrap();
    stream.launch(&kernel, Grid::covering((width, height)), (&x, &mut y, &mut marks, Len, Len, Len)).unwrap();
    assert_eq!(stream.read(&y).unwrap(), data);
    assert_eq!(stream.read(&marks).unwrap(), vec![1; height]);
}

#[test]
fn a_limit_that_a_launch_exceeds_is_named_with_both_numbers() {
    let Some((device, mut stream)) = device_and_stream() else { return };
    let mut y = stream.alloc::<u32>(4).unwrap();
    let fill = zoo::fill::<u32>().load(&device).unwrap();
    let limit = match stream.launch(&fill, Grid::blocks((1, 65_536)), (&mut y, 1, Len)) {
        Err(Error::Limit { limit, requested, allowed, .. }) => (limit, requested, allowed),
        other => panic!("{other:?}"),
    };
    assert_eq!(limit, (GridLimit::BlocksY, 65_536, 65_535));
}

#[test]
fn a_program_without_a_source_says_what_to_add() {
    let Some((device, _stream)) = device_and_stream() else { return };
    let error = Program::<(Out<u32>,)>::new("bare").load(&device).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("`bare`") && error.to_string().contains(subject::SOURCE), "{error}");
}

#[test]
fn parts_of_one_buffer_may_be_input_and_output_of_one_launch() {
    let Some((device, mut stream)) = device_and_stream() else { return };
    let add1 = zoo::add1::<u32>().load(&device).unwrap();
    let mut x = stream.alloc::<u32>(8).unwrap();
    stream.fill(&mut x, 4).unwrap();
    let (left, mut right) = x.split_at_mut(4).unwrap();
    stream.launch(&add1, Grid::covering(4), (&left, &mut right, Len, Len)).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [4, 4, 4, 4, 5, 5, 5, 5]);
}
