//! What a kernel sees of its tables.

use super::support::*;
use super::{N, kernels, launch, plus, repeated, spread, spread_of, try_launch, uploads};
use dacapo::{Error, ErrorKind, State};

/// Tables of several types, between buffers and scalars: an argument that took another's place would give a kernel the
/// wrong bytes, or those of the wrong type.
#[test]
fn every_argument_keeps_its_place_among_tables_buffers_and_scalars() {
    let Some(device) = device(1) else { return };
    let mut stream = device.stream().unwrap();
    let sum = kernels::sum_of_all().load(&device).unwrap();
    let (mut x, mut y) = (stream.alloc::<f32>(1).unwrap(), stream.alloc::<u8>(1).unwrap());
    stream.fill(&mut x, 3.0).unwrap();
    stream.fill(&mut y, 9u8).unwrap();
    let mut out = stream.alloc::<u32>(4).unwrap();
    let (a, c) = (vec![1u16, 2, 3], [[1000u32, 7]; 2]);
    let expected = [6 + 3 + 2000 + 100 + 21 + 9, 3, 2, 2];
    for _ in 0..2 {
        let args =
            (&a, &x, 100u32, &c, &mut out, &[[1u8, 2, 3], [4, 5, 6]], &y, Len, Len, Len, Len, Len, Len);
        stream.launch(&sum, Grid::covering(4), args).unwrap();
        assert_eq!(stream.read(&out).unwrap(), expected);
    }
    let record = |work: &mut Work<'_>| {
        let args =
            (&a, &x, 100u32, &c, &mut out, &[[1u8, 2, 3], [4, 5, 7]], &y, Len, Len, Len, Len, Len, Len);
        work.launch(&sum, Grid::covering(4), args)
    };
    let (mut graph, ()) = stream.record(record).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [expected[0] + 1, 3, 2, 2]);
}

/// The counts of an indirect grid come after tables and tokens, which are put into their places at other moments.
#[test]
fn every_argument_keeps_its_place_also_where_blocks_are_counted_by_a_buffer() {
    let Some(device) = device(1).filter(|_| subject::INDIRECT) else { return };
    let mut stream = device.stream().unwrap();
    let token = State::new(&device);
    let sum = kernels::sum_of_all().load(&device).unwrap().with_state(&token);
    let (mut x, mut y) = (stream.alloc::<f32>(1).unwrap(), stream.alloc::<u8>(1).unwrap());
    let (mut out, mut counts) = (stream.alloc::<u32>(4).unwrap(), stream.alloc::<u32>(3).unwrap());
    stream.fill(&mut x, 3.0).unwrap();
    stream.fill(&mut y, 9u8).unwrap();
    stream.write(&mut counts, &[2, 1, 1]).unwrap();
    let (a, c, d) = ([1u16, 2, 3], [[1000u32, 7]; 2], [[1u8, 2, 3], [4, 5, 6]]);
    let expected = [6 + 3 + 2000 + 100 + 21 + 9, 3, 2, 2];
    let args = (&a, &x, 100u32, &c, &mut out, &d, &y, Len, Len, Len, Len, Len, Len);
    stream.launch(&sum, Grid::indirect(&counts), args).unwrap();
    assert_eq!(stream.read(&out).unwrap(), expected);
    stream.fill(&mut out, 0).unwrap();
    let record = |work: &mut Work<'_>| {
        let args = (&a, &x, 100u32, &c, &mut out, &d, &y, Len, Len, Len, Len, Len, Len);
        work.launch(&sum, Grid::indirect(&counts), args)
    };
    let (mut graph, ()) = stream.record(record).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&out).unwrap(), expected);
}

/// A table that was read when its launch runs would show what the host did with it since.
#[test]
fn a_launch_sees_the_table_as_it_was_at_the_call() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let gate = Gate::close(&mut stream);
    let mut table = vec![1, 2, 3];
    stream.launch(&k, Grid::covering(N), (&table, &mut out, Len, Len)).unwrap();
    table.fill(9);
    drop(table);
    assert!(is_held_up(&mut stream));
    gate.open();
    assert_eq!(stream.read(&out).unwrap(), repeated(&[1, 2, 3]));
}

/// Nothing has no address: asking the driver for it is an error on some, and a wasted call on all.
#[test]
fn an_empty_table_is_an_empty_slice_and_asks_nothing_of_the_driver() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc_scratch::<u32>(N).unwrap();
    for _ in 0..2 {
        let before = subject::driver_calls(&device);
        launch(&mut stream, &k, &[], &mut out);
        assert_eq!(subject::driver_calls(&device), plus(before, 1), "the launch, and nothing for its table");
        assert_eq!(stream.read(&out).unwrap(), [0; N]);
    }
    let before = uploads(&device);
    let record = |work: &mut Work<'_>| {
        let mut other = work.alloc::<u32>(N)?;
        launch(work, &k, &[], &mut out);
        launch(work, &k, &[1], &mut other);
        launch(work, &k, &[], &mut other);
        Ok(other)
    };
    let (mut graph, other) = stream.record(record).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!((stream.read(&out).unwrap(), stream.read(&other).unwrap()), (vec![0; N], vec![0; N]));
    assert_eq!(uploads(&device), plus(before, 1));
    let mut other = device.stream().unwrap();
    let (mut graph, ()) = other.record(|work| try_launch(work, &k, &[], &mut out)).unwrap();
    graph.replay(&mut other).unwrap();
    assert_eq!(uploads(&device), plus(before, 1), "a window whose only table is empty");
}

/// A table that only some devices can bind would work here and fail there.
#[test]
fn a_table_that_is_too_large_is_refused_by_name_and_limit() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let limit = Uniform::<u32>::MAX_BYTES;
    let largest = vec![5u32; limit / 4];
    assert_eq!(spread_of(&mut stream, &k, &largest), [5; N]);
    let too_large = vec![5u32; limit / 4 + 1];
    let mut out = stream.alloc::<u32>(N).unwrap();
    let error = stream.launch(&k, Grid::covering(N), (&too_large, &mut out, Len, Len)).unwrap_err();
    assert!(matches!(&error, Error::TableTooBig { kernel, requested, limit: most }
        if &**kernel == "spread" && *requested == limit + 4 && *most == limit));
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert!(error.to_string().contains("spread") && error.to_string().contains(&limit.to_string()));
    assert!(matches!(stream.read(&out).unwrap_err().root(), Error::TableTooBig { .. }));
    let refused = stream.record(|work| work.launch(&k, Grid::covering(N), (&too_large, &mut out, Len, Len)));
    assert!(matches!(refused.unwrap_err(), Error::TableTooBig { .. }));
    assert_eq!(spread_of(&mut stream, &k, &[3]), [3; N], "the stream is as usable as before");
}

/// A launch that does nothing needs nothing.
#[test]
fn an_empty_grid_brings_no_table() {
    let Some(device) = device(1) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let before = (subject::driver_calls(&device), uploads(&device));
    stream.launch(&k, Grid::covering(0), (&[1, 2], &mut out, Len, Len)).unwrap();
    assert_eq!((subject::driver_calls(&device), uploads(&device)), before);
}

/// An upload before a launch that is refused anyway would be in vain.
#[test]
fn a_launch_that_cannot_be_right_brings_no_table() {
    let (Some(device), Some(elsewhere)) = (device(1), device(1)) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut foreign = elsewhere.stream().unwrap().alloc::<u32>(N).unwrap();
    let error = stream.launch(&k, Grid::covering(N), (&[1, 2], &mut foreign, Len, Len)).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { object: "buffer", .. }));
    assert_eq!(uploads(&device).unwrap_or(0), 0);
    assert_eq!(spread_of(&mut stream, &k, &[1, 2]), repeated(&[1, 2]));
}
