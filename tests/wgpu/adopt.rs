//! Buffers of a program's own, used by both.

use dacapo::prelude::*;
use dacapo::wgpu::{EnqueueTexture, Wgpu, wgpu};
use dacapo::{Error, Hindrance, Refused};

use crate::support::{Buf, Gate, Program, eventually, message, ramp};
use crate::texture::texture;

fn kept(refused: Refused<Buf<u32>>) -> (Buf<u32>, Hindrance) {
    match refused.into_parts() {
        (buffer, Error::Kept { operation: "into_wgpu", because }) => (buffer, because),
        (_, other) => panic!("{other}"),
    }
}

/// What is on the device already is uploaded a second time, or copied.
#[test]
fn a_buffer_is_taken_over_without_a_copy_and_comes_back() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let before = device.memory_usage().held;
    let theirs = program.buffer(&ramp(1000));
    let mut x = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, theirs.clone()).unwrap();
    let report = device.memory_report();
    assert_eq!((report.adopted.buffers, report.adopted.bytes), (1, 4000));
    assert_eq!((device.memory_usage().adopted, device.memory_usage().held), (4000, before));
    assert_eq!(stream.read(&x).unwrap(), ramp(1000));
    stream.fill(x.slice_mut(10..990).unwrap(), 7).unwrap();
    let back = x.into_wgpu().unwrap();
    assert_eq!(back, theirs);
    let mut expected = ramp(1000);
    expected[10..990].fill(7);
    // What the program submits now comes after what was enqueued, though nobody waited for that.
    assert_eq!(program.words(&back), expected);
    assert_eq!(device.memory_report().adopted.buffers, 0);
    // And again.
    let x = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, back).unwrap();
    assert_eq!(stream.read(&x).unwrap(), expected);
    drop(x);
    assert_eq!(device.memory_usage().adopted, 0);
    assert_eq!(program.errors(), 0);
}

/// An encoder that is open when the buffer goes back is submitted after what the program does next.
#[test]
fn what_several_streams_enqueued_is_submitted_before_the_buffer_goes_back() {
    let program = crate::program!();
    let device = program.open();
    let mut streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    // What takes its time, so that what comes after it stays in the encoder.
    let large = streams[0].alloc::<u32>(4 << 20).unwrap();
    let mut copies: Vec<_> = streams.iter_mut().map(|s| s.alloc_scratch::<u32>(4 << 20).unwrap()).collect();
    let mut theirs = program.buffer(&ramp(400));
    for round in 1..=20u32 {
        let mut x = Buffer::<u32, Wgpu>::from_wgpu(&mut streams[0], theirs).unwrap();
        for (n, (stream, copy)) in streams.iter_mut().zip(&mut copies).enumerate() {
            stream.copy(&large, copy).unwrap();
            stream.fill(x.slice_mut(100 * n..100 * (n + 1)).unwrap(), round + n as u32).unwrap();
        }
        theirs = x.into_wgpu().unwrap();
        let expected: Vec<u32> = (0..400).map(|n| round + n / 100).collect();
        assert_eq!(program.words(&theirs), expected);
    }
}

/// A fill behind a host callback is not encoded yet when the buffer goes back.
#[test]
fn what_is_behind_a_callback_is_submitted_before_the_buffer_goes_back() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let mut x = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, program.buffer(&ramp(100))).unwrap();
    let gate = Gate::close(&mut stream).unwrap();
    stream.fill(&mut x, 5).unwrap();
    let back = std::thread::spawn(move || x.into_wgpu().unwrap());
    gate.open();
    assert_eq!(program.words(&back.join().unwrap()), [5; 100]);
}

/// A submission that uses what it may not fails as a whole, with what others put into it.
#[test]
fn what_cannot_be_adopted_is_refused_and_handed_back() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let make = |size, usage| {
        let mapped_at_creation = false;
        program.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation })
    };
    let all = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let mut refuse = |buffer: wgpu::Buffer| {
        let refused = Buffer::<u64, Wgpu>::from_wgpu(&mut stream, buffer.clone()).unwrap_err();
        let (back, error) = refused.into_parts();
        assert_eq!(back, buffer);
        error
    };
    for lacks in [wgpu::BufferUsages::STORAGE, wgpu::BufferUsages::COPY_SRC, wgpu::BufferUsages::COPY_DST] {
        let error = refuse(make(64, all - lacks));
        assert!(matches!(error, Error::Unsupported { operation: "from_wgpu", .. }), "{error}");
    }
    assert!(matches!(refuse(make(0, all)), Error::Unsupported { .. }));
    assert!(matches!(refuse(make(66, all)), Error::Unsupported { .. }));
    assert!(matches!(refuse(make(12, all)), Error::CastSize { bytes: 12, element: 8 }));
    // What wgpu says itself.
    let destroyed = make(64, all);
    destroyed.destroy();
    let error = refuse(destroyed);
    assert!(message(&error).contains("destroyed"), "{error}");
    let mapped = program.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 64,
        usage: all,
        mapped_at_creation: true,
    });
    assert!(message(&refuse(mapped.clone())).contains("is mapped"));
    let view = mapped.get_mapped_range_mut(..).unwrap();
    assert!(message(&refuse(mapped.clone())).contains("mapped"));
    drop(view);
    mapped.unmap();
    // None of it harmed anybody.
    device.check().unwrap();
    assert_eq!(program.errors(), 0);
    let mut x = Buffer::<u64, Wgpu>::from_wgpu(&mut stream, mapped).unwrap();
    stream.fill(&mut x, 4).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [4; 8]);
    let mut x = Buffer::<u64, Wgpu>::from_wgpu(&mut stream, make(64, all)).unwrap();
    stream.fill(&mut x, 3).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [3; 8]);
}

/// To wgpu a buffer is a number, which means another buffer elsewhere: that one would be written.
#[test]
fn what_is_of_another_device_is_refused_whatever_its_number() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    // Another instance of wgpu, and another device of the same.
    for other in [Program::new().unwrap(), program.sibling()] {
        for _ in 0..20 {
            let theirs = other.buffer(&ramp(16));
            let refused = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, theirs.clone()).unwrap_err();
            assert!(message(refused.error()).contains("of another device"), "{}", refused.error());
            let mut x = stream.alloc::<u32>(16).unwrap();
            let texels = texture(&other, wgpu::TextureFormat::R32Uint, [4, 4, 1], 1);
            let error = stream.copy_from_texture(&texels, &mut x).unwrap_err();
            assert!(message(&error).contains("of another device"), "{error}");
            assert_eq!(other.words(&theirs), ramp(16));
        }
        assert_eq!(other.errors(), 40);
    }
    assert_eq!(program.errors(), 0);
    device.check().unwrap();
}

/// Memory that something still uses must not become the program's again.
#[test]
fn what_stands_in_the_way_of_giving_a_buffer_back_is_named() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let own = stream.alloc::<u32>(100).unwrap();
    assert_eq!(kept(own.into_wgpu().unwrap_err()).1, Hindrance::NotAdopted);
    let mut x = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, program.buffer(&ramp(100))).unwrap();
    let rest = x.split_off(50).unwrap();
    let (x, because) = kept(x.into_wgpu().unwrap_err());
    assert_eq!(because, Hindrance::Part);
    drop((rest, x));
    let mut x = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, program.buffer(&ramp(100))).unwrap();
    let (mut graph, ()) = stream.record(|work| work.fill(&mut x, 9)).unwrap();
    let (x, because) = kept(x.into_wgpu().unwrap_err());
    assert_eq!(because, Hindrance::InGraph);
    graph.replay(&mut stream).unwrap();
    drop(graph);
    assert_eq!(program.words(&x.into_wgpu().unwrap()), [9; 100]);
}

/// A graph that only knew the buffer's name would write into memory that is gone.
#[test]
fn a_graph_keeps_an_adopted_buffer() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let theirs = program.buffer(&ramp(100));
    let mut x = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, theirs.clone()).unwrap();
    let (mut graph, ()) = stream.record(|work| work.fill(&mut x, 4)).unwrap();
    drop(x);
    graph.replay(&mut stream).unwrap();
    stream.sync().unwrap();
    assert_eq!(program.words(&theirs), [4; 100]);
    drop(graph);
    assert!(eventually(|| device.memory_usage().adopted == 0));
}

/// Bytes that nothing wrote would be taken for a result by a program that no error can reach.
#[test]
fn a_tainted_buffer_is_not_given_back() {
    let program = crate::program!();
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let mut x = Buffer::<u32, Wgpu>::from_wgpu(&mut stream, program.buffer(&ramp(100))).unwrap();
    stream.write(&mut x, &[1; 7]).unwrap_err();
    let (mut x, error) = x.into_wgpu().unwrap_err().into_parts();
    assert!(matches!(error, Error::Tainted { .. }), "{error}");
    stream.write(&mut x, &[1; 100]).unwrap();
    assert_eq!(program.words(&x.into_wgpu().unwrap()), [1; 100]);
}
