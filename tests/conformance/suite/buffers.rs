//! Buffers: ranges, parts and casts, and the errors that name both numbers.

use super::support::*;
use dacapo::{Error, ErrorKind};

fn stream() -> Option<Stream> {
    Some(device(2)?.stream().unwrap())
}

#[test]
fn a_range_outside_the_buffer_is_refused_with_the_range_and_the_length() {
    let Some(mut stream) = stream() else { return };
    let mut x = stream.alloc::<u32>(10).unwrap();
    assert!(matches!(x.slice(4..12), Err(Error::OutOfRange { start: 4, end: 12, len: 10 })));
    assert!(matches!(x.slice(11..), Err(Error::OutOfRange { start: 11, len: 10, .. })));
    #[allow(clippy::reversed_empty_ranges, reason = "what a caller may compute by mistake")]
    let reversed = x.slice(5..3);
    assert!(matches!(reversed, Err(Error::OutOfRange { start: 5, end: 3, .. })));
    assert!(matches!(x.slice(0..=usize::MAX), Err(Error::OutOfRange { .. })));
    assert!(x.slice_mut(..11).is_err());
    assert!(x.split_at_mut(11).is_err());
    assert!(x.split_off(11).is_err());
    assert_eq!(x.len(), 10);
    assert_eq!(x.slice(10..).unwrap().len(), 0);
    assert_eq!(x.slice(2..8).unwrap().slice(1..=2).unwrap().len(), 2);
}

#[test]
fn ranges_of_ranges_name_the_elements_that_they_say() {
    let Some(mut stream) = stream() else { return };
    let mut x = stream.alloc::<u32>(10).unwrap();
    let data: Vec<u32> = (0..10).collect();
    stream.write(&mut x, &data).unwrap();
    assert_eq!(stream.read(x.slice(2..8).unwrap().slice(1..3).unwrap()).unwrap(), [3, 4]);
    stream.fill(x.slice_mut(3..5).unwrap(), 99).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [0, 1, 2, 99, 99, 5, 6, 7, 8, 9]);
}

#[test]
fn the_parts_of_a_split_buffer_live_apart() {
    let Some(mut stream) = stream() else { return };
    let mut x = stream.alloc::<u32>(10).unwrap();
    stream.write(&mut x, (0..10).collect::<Vec<u32>>()).unwrap();
    let mut tail = x.split_off(6).unwrap();
    let middle = x.split_off(3).unwrap();
    assert_eq!((x.len(), middle.len(), tail.len()), (3, 3, 4));
    drop(x);
    stream.fill(&mut tail, 7).unwrap();
    assert_eq!(stream.read(&middle).unwrap(), [3, 4, 5]);
    assert_eq!(stream.read(&tail).unwrap(), [7; 4]);
}

#[test]
fn a_cast_keeps_the_bytes_and_one_that_does_not_come_out_even_gives_the_buffer_back() {
    let Some(mut stream) = stream() else { return };
    let mut x = stream.alloc::<u32>(3).unwrap();
    stream.write(&mut x, &[0x0403_0201, 0x0807_0605, 0x0c0b_0a09]).unwrap();
    let (x, error) = x.cast::<u64>().unwrap_err().into_parts();
    assert!(matches!(error, Error::CastSize { bytes: 12, element: 8 }), "{error}");
    let mut bytes = x.cast::<u8>().unwrap();
    assert_eq!(stream.read(&bytes).unwrap(), (1..=12).collect::<Vec<u8>>());
    let odd = bytes.split_off(1).unwrap();
    let (mut odd, error) = odd.cast::<u16>().unwrap_err().into_parts();
    assert!(matches!(error, Error::CastSize { bytes: 11, element: 2 }), "{error}");
    let even = odd.split_off(1).unwrap();
    assert_eq!(even.cast::<u16>().unwrap().len(), 5);
    let error = odd.as_slice().cast::<u16>().unwrap_err();
    assert!(matches!(error, Error::CastSize { bytes: 1, element: 2 }), "{error}");
}

#[test]
fn a_cast_from_a_byte_where_no_element_may_start_is_refused() {
    let Some(mut stream) = stream() else { return };
    let x = stream.alloc::<u8>(16).unwrap();
    let error = x.slice(2..6).unwrap().cast::<u32>().unwrap_err();
    assert!(matches!(error, Error::CastAlignment { start: 2, align: 4 }), "{error}");
    assert_eq!(x.slice(4..8).unwrap().cast::<u32>().unwrap().len(), 1);
}

#[test]
fn lengths_that_do_not_agree_are_refused_with_both_and_the_destination_is_tainted() {
    let Some(mut stream) = stream() else { return };
    let x = stream.alloc::<u32>(4).unwrap();
    let mut y = stream.alloc::<u32>(8).unwrap();
    let error = stream.copy(&x, &mut y).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { source_len: 4, target_len: 8, .. }), "{error}");
    assert_eq!(stream.read(&y).unwrap_err().kind(), ErrorKind::Tainted);
    stream.copy(&x, y.slice_mut(..4).unwrap()).unwrap();
    assert_eq!(stream.read(y.slice(..4).unwrap()).unwrap(), [0; 4]);
    let mut short = [0u32; 3];
    let error = stream.read_into(&x, &mut short).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { source_len: 4, target_len: 3, .. }), "{error}");
}

#[test]
fn a_buffer_of_another_device_is_refused_with_both_devices() {
    let Some(mut here) = stream() else { return };
    let Some(mut there) = stream() else { return };
    let x = here.alloc::<u32>(4).unwrap();
    let mut y = there.alloc::<u32>(4).unwrap();
    let (expected, found) = (there.device().index(), here.device().index());
    match there.copy(&x, &mut y).unwrap_err() {
        Error::WrongDevice { object: "buffer", expected: e, found: f, .. } => {
            assert_eq!((e, f), (expected, found))
        }
        other => panic!("{other}"),
    }
    assert_eq!(here.read(&x).unwrap(), [0; 4]);
    assert_eq!(there.read(&y).unwrap_err().kind(), ErrorKind::Tainted);
}

#[test]
fn a_request_that_no_device_could_serve_is_too_big_at_once() {
    let Some(mut stream) = stream() else { return };
    let before = subject::driver_calls(&stream.device());
    let error = stream.alloc::<u64>(usize::MAX / 4).unwrap_err();
    assert!(matches!(error, Error::BufferTooBig { requested: usize::MAX, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert_eq!(subject::driver_calls(&stream.device()), before);
}
