//! What a kernel sees of its tables.

use dacapo::prelude::*;
use dacapo::{Call, DeviceOptions, Error, ErrorKind, host::HostOptions};

use crate::support::calls;
use crate::{N, launch, repeated, spread, spread_of, try_launch, uploads};

/// Tables of several types, between buffers and scalars: an argument that took another's place would give a kernel the
/// wrong bytes, or those of the wrong type.
#[test]
fn every_argument_keeps_its_place_among_tables_buffers_and_scalars() {
    type All = (Uniform<u16>, In<f32>, u32, Uniform<f64>, Out<f64>, Uniform<[u8; 3]>, In<u8>);
    let device = Device::host().unwrap();
    let mut stream = device.stream().unwrap();
    let sum = Program::<All>::new("sum").host(|(a, x, b, c, out, d, y), _| {
        let tables = a.iter().map(|a| f64::from(*a)).sum::<f64>() + c.iter().sum::<f64>();
        let bytes: u32 = d.iter().flatten().map(|d| u32::from(*d)).sum();
        out[0] = tables + f64::from(x[0]) + f64::from(b + bytes + u32::from(y[0]));
        (out[1], out[2], out[3]) = (a.len() as f64, c.len() as f64, d.len() as f64);
    });
    let sum = sum.load(&device).unwrap();
    let (mut x, mut y) = (stream.alloc::<f32>(1).unwrap(), stream.alloc::<u8>(1).unwrap());
    stream.fill(&mut x, 0.5).unwrap();
    stream.fill(&mut y, 9u8).unwrap();
    let mut out = stream.alloc::<f64>(4).unwrap();
    let (a, c) = (vec![1u16, 2, 3], [0.25f64; 2]);
    let expected = [6.0 + 0.5 + 0.5 + 100.0 + 21.0 + 9.0, 3.0, 2.0, 2.0];
    for _ in 0..2 {
        let args = (&a, &x, 100u32, &c, &mut out, &[[1u8, 2, 3], [4, 5, 6]], &y);
        stream.launch(&sum, Grid::covering(1), args).unwrap();
        assert_eq!(stream.read(&out).unwrap(), expected);
    }
    let record = |work: &mut Work<'_>| {
        let args = (&a, &x, 100u32, &c, &mut out, &[[1u8, 2, 3], [4, 5, 7]], &y);
        work.launch(&sum, Grid::covering(1), args)
    };
    let (mut graph, ()) = stream.record(record).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [expected[0] + 1.0, 3.0, 2.0, 2.0]);
}

/// A table that was read when its launch runs would show what the host did with it since.
#[test]
fn a_launch_sees_the_table_as_it_was_at_the_call() {
    let (device, stepper) = Device::<Host>::stepped(DeviceOptions::new()).unwrap();
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let mut table = vec![1, 2, 3];
    stream.launch(&k, Grid::covering(N), (&table, &mut out)).unwrap();
    table.fill(9);
    drop(table);
    assert!(stepper.pending(stream.id()) > 0);
    assert_eq!(stream.read(&out).unwrap(), repeated(&[1, 2, 3]));
}

/// Nothing has no address: asking the driver for it is an error on some, and a wasted call on all.
#[test]
fn an_empty_table_is_an_empty_slice_and_asks_nothing_of_the_driver() {
    let device = Device::host().unwrap();
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc_scratch::<u32>(N).unwrap();
    for _ in 0..2 {
        let before = calls(&device);
        launch(&mut stream, &k, &[], &mut out);
        assert_eq!(calls(&device), before + 1, "the launch, and nothing for its table");
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
    assert_eq!(uploads(&device), before + 1);
    let mut other = device.stream().unwrap();
    let (mut graph, ()) = other.record(|work| try_launch(work, &k, &[], &mut out)).unwrap();
    graph.replay(&mut other).unwrap();
    assert_eq!(uploads(&device), before + 1, "a window whose only table is empty");
}

/// A table that only some devices can bind would work here and fail there.
#[test]
fn a_table_that_is_too_large_is_refused_by_name_and_limit() {
    let device = Device::host().unwrap();
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let limit = Uniform::<u32>::MAX_BYTES;
    let largest = vec![5u32; limit / 4];
    assert_eq!(spread_of(&mut stream, &k, &largest), [5; N]);
    let too_large = vec![5u32; limit / 4 + 1];
    let mut out = stream.alloc::<u32>(N).unwrap();
    let error = stream.launch(&k, Grid::covering(N), (&too_large, &mut out)).unwrap_err();
    assert!(matches!(&error, Error::TableTooBig { kernel, requested, limit: most }
        if &**kernel == "spread" && *requested == limit + 4 && *most == limit));
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert!(error.to_string().contains("spread") && error.to_string().contains(&limit.to_string()));
    assert!(matches!(stream.read(&out).unwrap_err().root(), Error::TableTooBig { .. }));
    let refused = stream.record(|work| work.launch(&k, Grid::covering(N), (&too_large, &mut out)));
    assert!(matches!(refused.unwrap_err(), Error::TableTooBig { .. }));
    assert_eq!(spread_of(&mut stream, &k, &[3]), [3; N], "the stream is as usable as before");
}

/// A chunk that was given a part of a table would look coefficients up past its end.
#[test]
fn a_kernel_in_chunks_sees_its_tables_whole() {
    for threads in [1, 3] {
        let host = HostOptions::new().threads(threads);
        let device: Device = Device::open(DeviceOptions::new().backend(host)).unwrap();
        let mut stream = device.stream().unwrap();
        let program = Program::<(Uniform<u32>, Out<u32>, Uniform<u32>)>::new("scale");
        let scale = program.host_chunks(|(table, out, by), chunk| {
            let rows = chunk.rows().map(|row| table[row] * by[0]);
            out.iter_mut().zip(rows).for_each(|(out, row)| *out = row);
        });
        let scale = scale.load(&device).unwrap();
        // Neither length of a table divides by the rows: only outputs must.
        let (rows, table) = (100, (0..101).collect::<Vec<u32>>());
        let mut out = stream.alloc_scratch::<u32>(rows).unwrap();
        stream.launch(&scale, Grid::covering(rows), (&table, &mut out, &[3])).unwrap();
        assert_eq!(stream.read(&out).unwrap(), (0..100).map(|row| row * 3).collect::<Vec<_>>());
        let mut uneven = stream.alloc_scratch::<u32>(rows + 1).unwrap();
        let error = stream.launch(&scale, Grid::covering(rows), (&table, &mut uneven, &[3])).unwrap_err();
        assert!(matches!(error, Error::Unchunkable { len: 101, outer: 100, .. }));
    }
}

/// A launch that does nothing needs nothing.
#[test]
fn an_empty_grid_brings_no_table() {
    let device = Device::host().unwrap();
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let before = (calls(&device), uploads(&device));
    stream.launch(&k, Grid::covering(0), (&[1, 2], &mut out)).unwrap();
    assert_eq!((calls(&device), uploads(&device)), before);
}

/// An upload before a launch that is refused anyway would be in vain.
#[test]
fn a_launch_that_cannot_be_right_brings_no_table() {
    let (device, elsewhere) = (Device::host().unwrap(), Device::host().unwrap());
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut foreign = elsewhere.stream().unwrap().alloc::<u32>(N).unwrap();
    let error = stream.launch(&k, Grid::covering(N), (&[1, 2], &mut foreign)).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { object: "buffer", .. }));
    assert_eq!(device.faults().count(Call::Write), 0);
    assert_eq!(spread_of(&mut stream, &k, &[1, 2]), repeated(&[1, 2]));
}
