//! What comes after what: writes and encoded work, slices of one page, scalars of one kernel.

use dacapo::prelude::*;
use dacapo::wgpu::{Wgpu, wgpu};
use dacapo::{CaptureOptions, Len};

use crate::support::{Program as Theirs, add, written};

type Unary = (In<u32>, Out<u32>, Len<0>);
type Append = (In<u32>, InOut<u32>, InOut<u32>, Len<1>);

const COPY: &str = "
struct Lengths { n: u32 }
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> lengths: Lengths;
@compute @workgroup_size(256)
fn copy(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < lengths.n { y[id.x] = x[id.x]; }
}
@compute @workgroup_size(256)
fn plus_one(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < lengths.n { y[id.x] = x[id.x] + 1u; }
}
";

const APPEND: &str = "
struct Lengths { n: u32 }
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> slots: array<u32>;
@group(0) @binding(2) var<storage, read_write> next: array<u32>;
@group(0) @binding(3) var<uniform> lengths: Lengths;
@compute @workgroup_size(1)
fn append() {
    if next[0] < lengths.n { slots[next[0]] = x[0]; }
    next[0] += 1u;
}
";

fn unary(device: &Device<Wgpu>, entry: &str) -> Kernel<Unary, Wgpu> {
    Program::<Unary>::new(entry).wgsl(COPY, entry).load(device).unwrap()
}

fn append(device: &Device<Wgpu>) -> Kernel<Append, Wgpu> {
    Program::<Append>::new("append").block(1, 1, 1).wgsl(APPEND, "append").load(device).unwrap()
}

/// The device as it is, and one whose scalars go by uniforms: `body` is run on both.
fn with_and_without_immediates(body: impl Fn(&Device<Wgpu>)) {
    body(&match crate::support::device() {
        Some(device) => device,
        None => return,
    });
    let theirs = crate::program!();
    assert!(!theirs.device.features().contains(wgpu::Features::IMMEDIATES));
    body(&theirs.open());
}

/// A write by wgpu's queue comes before everything that is submitted later, whatever was encoded before it.
#[test]
fn wgpu_01_a_write_comes_after_the_work_before_it() {
    let device = crate::device!();
    let copy = unary(&device, "copy");
    let mut s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(1).unwrap();
    let (mut y, mut z) = (s.alloc::<u32>(1).unwrap(), s.alloc::<u32>(1).unwrap());
    s.write(&mut x, &[1]).unwrap();
    s.launch(&copy, Grid::covering(1), (&x, &mut y, Len)).unwrap();
    s.write(&mut x, &[2]).unwrap();
    s.launch(&copy, Grid::covering(1), (&x, &mut z, Len)).unwrap();
    assert_eq!((s.read(&y).unwrap(), s.read(&z).unwrap()), (vec![1], vec![2]));
}

/// The same around replays, which are encoded and not submitted at once.
#[test]
fn wgpu_01_a_write_comes_between_two_replays() {
    let device = crate::device!();
    let append = append(&device);
    let mut s = device.stream().unwrap();
    let (mut x, mut next) = (s.alloc::<u32>(1).unwrap(), s.alloc::<u32>(1).unwrap());
    let mut slots = s.alloc::<u32>(8).unwrap();
    let (mut graph, ()) =
        s.record(|work| work.launch(&append, Grid::blocks(1), (&x, &mut slots, &mut next, Len))).unwrap();
    for value in 1..=8u32 {
        s.write(&mut x, &[value]).unwrap();
        graph.replay(&mut s).unwrap();
    }
    assert_eq!(s.read(&slots).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// And on another stream, whose encoder is another one.
#[test]
fn wgpu_01_a_write_of_another_stream_comes_after_the_work_that_it_follows() {
    let device = crate::device!();
    let append = append(&device);
    let (mut one, mut two) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut next) = (one.alloc::<u32>(1).unwrap(), one.alloc::<u32>(1).unwrap());
    let mut slots = one.alloc::<u32>(64).unwrap();
    for value in 0..64u32 {
        two.write(&mut x, &[value]).unwrap();
        one.launch(&append, Grid::blocks(1), (&x, &mut slots, &mut next, Len)).unwrap();
    }
    assert_eq!(two.read(&slots).unwrap(), (0..64).collect::<Vec<_>>());
}

/// Scalars lie in memory of the library's where a device has no immediates: a later launch's must not reach an earlier one.
#[test]
fn wgpu_01_each_launch_has_the_scalars_that_it_was_given() {
    with_and_without_immediates(|device| {
        let add = add(device);
        let mut s = device.stream().unwrap();
        let mut x = s.alloc::<u32>(300).unwrap();
        for by in 0..500u32 {
            s.launch(&add, Grid::covering(300), (&mut x, by, Len)).unwrap();
        }
        assert_eq!(s.read(&x).unwrap(), [499 * 500 / 2; 300]);
    });
}

/// The first submission that binds a page of scalars once cleared those that another thread was just writing to it.
#[test]
fn wgpu_01_launches_of_several_threads_have_their_own_scalars() {
    let theirs = Theirs::with(|limits| wgpu::Limits { min_uniform_buffer_offset_alignment: 256, ..limits });
    let Some(theirs) = theirs else { return };
    let device = theirs.open();
    let add = add(&device);
    let launch = &|thread| {
        let mut s = device.stream().unwrap();
        let (mut x, mut sum) = (s.alloc::<u32>(4).unwrap(), 0);
        for by in (thread..4000).step_by(4) {
            s.launch(&add, Grid::covering(4), (&mut x, by, Len)).unwrap();
            sum += by;
        }
        assert_eq!(s.read(&x).unwrap(), [sum; 4]);
    };
    std::thread::scope(|scope| (0..4).for_each(|thread| _ = scope.spawn(move || launch(thread))));
}

/// What a graph was recorded with is what it has for ever, whatever eager launches do to caches in between.
#[test]
fn val_01_scalars_and_tables_of_a_graph_stay_what_they_were() {
    with_and_without_immediates(|device| {
        let add = add(device);
        let mut s = device.stream().unwrap();
        let mut x = s.alloc::<u32>(4).unwrap();
        let mut y = s.alloc::<u32>(4).unwrap();
        let (mut graph, ()) =
            s.record(|work| work.launch(&add, Grid::covering(4), (&mut x, 3u32, Len))).unwrap();
        // More different ones than are remembered, so that the graph's own is forgotten by whoever looks it up.
        for by in 0..5000u32 {
            s.launch(&add, Grid::covering(4), (&mut y, by, Len)).unwrap();
        }
        graph.replay(&mut s).unwrap();
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&x).unwrap(), [6; 4]);
    });
}

/// wgpu tracks the use of whole buffers, and refuses one that a dispatch reads and writes.
#[test]
fn wgpu_02_two_slices_of_one_buffer_are_read_and_written_at_once() {
    let device = crate::device!();
    let plus_one = unary(&device, "plus_one");
    let mut s = device.stream().unwrap();
    let mut both = written(&mut s, &(0..128).collect::<Vec<_>>());
    {
        let (a, mut b) = both.split_at_mut(64).unwrap();
        s.launch(&plus_one, Grid::covering(64), (&a, &mut b, Len)).unwrap();
    }
    let expected: Vec<u32> = (0..64).chain(1..65).collect();
    assert_eq!(s.read(&both).unwrap(), expected);
    s.fill(&mut both, 7).unwrap();
    let (mut graph, ()) = s
        .record_with(CaptureOptions::new(), |work| {
            let (a, mut b) = both.split_at_mut(64)?;
            work.launch(&plus_one, Grid::covering(64), (&a, &mut b, Len))
        })
        .unwrap();
    graph.replay(&mut s).unwrap();
    assert_eq!(s.read(&both).unwrap(), [[7; 64], [8; 64]].concat());
}

/// Two buffers that share a page are as good as two that do not; and one may be two inputs of a launch.
#[test]
fn wgpu_02_buffers_that_share_a_page_are_read_and_written_at_once() {
    let device = crate::device!();
    let plus_one = unary(&device, "plus_one");
    let mut s = device.stream().unwrap();
    let mut buffers: Vec<_> = (0..32).map(|_| s.alloc::<u32>(64).unwrap()).collect();
    for i in 1..32 {
        let (done, next) = buffers.split_at_mut(i);
        s.launch(&plus_one, Grid::covering(64), (&done[i - 1], &mut next[0], Len)).unwrap();
    }
    for (i, buffer) in buffers.iter().enumerate() {
        assert_eq!(s.read(buffer).unwrap(), [i as u32; 64]);
    }
}

/// A slice may start and end anywhere; what is beside it is somebody else's.
#[test]
fn shape_06_slices_at_every_place_are_exact() {
    let device = crate::device!();
    let plus_one = unary(&device, "plus_one");
    let mut s = device.stream().unwrap();
    let x = written(&mut s, &(0..200).collect::<Vec<_>>());
    for start in [0usize, 1, 7, 63, 64, 65, 100] {
        for len in [1usize, 2, 3, 50, 64] {
            let mut y = s.alloc::<u32>(200).unwrap();
            s.fill(&mut y, 9).unwrap();
            let (from, mut to) =
                (x.slice(start..start + len).unwrap(), y.slice_mut(start + 3..start + 3 + len).unwrap());
            s.launch(&plus_one, Grid::covering(len), (from, &mut to, Len)).unwrap();
            let read = s.read(&y).unwrap();
            for (i, value) in read.iter().enumerate() {
                let inside = (start + 3..start + 3 + len).contains(&i);
                assert_eq!(*value, if inside { (i - 3 + 1) as u32 } else { 9 }, "{start} {len} {i}");
            }
        }
    }
}
