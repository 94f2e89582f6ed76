//! Waits that must end, and what must not be believed after one.

use dacapo::prelude::*;
use dacapo::wgpu::{Wgpu, WgpuOptions};
use dacapo::{DeviceOptions, ErrorKind, Len};

use crate::support::{Buf, Gate, device_with, ramp, within_long, written};

type Sum = (In<u32>, In<u32>, Out<u32>, Len<2>);

const SUM: &str = "
struct Lengths { n: u32 }
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<u32>;
@group(0) @binding(3) var<uniform> lengths: Lengths;
@compute @workgroup_size(256)
fn sum(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < lengths.n { c[id.x] = a[id.x] + b[id.x]; }
}
";

/// Waits for other streams are in the backlog too, and have no numbers: a wait for room that counted them waited for an operation
/// that nobody had asked for.
#[test]
fn a_stream_behind_two_others_finds_room_again() {
    let options = DeviceOptions::new().max_streams(3).backend(WgpuOptions::new().in_flight(64));
    let Some(device) = device_with(options) else { return };
    let sum = Program::<Sum>::new("sum").wgsl(SUM, "sum").load(&device).unwrap();
    let mut streams: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let (mut a, mut b) = (streams[0].alloc::<u32>(9).unwrap(), streams[1].alloc::<u32>(9).unwrap());
    let mut c = streams[2].alloc::<u32>(9).unwrap();
    let gates = [Gate::close(&mut streams[0]).unwrap(), Gate::close(&mut streams[1]).unwrap()];
    streams[0].fill(&mut a, 3).unwrap();
    streams[1].fill(&mut b, 4).unwrap();
    std::thread::scope(|scope| {
        let (sum, a, b, c, stream) = (&sum, &a, &b, &mut c, &mut streams[2]);
        let busy = scope.spawn(move || {
            for _ in 0..300 {
                stream.launch(sum, Grid::covering(9), (a, b, &mut *c, Len)).unwrap();
            }
        });
        // Long enough for the stream to be full, and no proof of anything: opened sooner, there is less to see.
        std::thread::sleep(std::time::Duration::from_millis(200));
        gates.into_iter().for_each(Gate::open);
        busy.join().unwrap();
    });
    assert_eq!(streams[2].read(&c).unwrap(), [7; 9]);
}

/// wgpu refuses a submission as a whole, and still grants the mapping of what it was to write.
#[test]
fn a_read_of_a_submission_that_was_refused_gives_no_bytes() {
    let theirs = crate::program!();
    let device = theirs.open();
    let mut s = device.stream().unwrap();
    let x = written(&mut s, &ramp(64));
    assert_eq!(s.read(&x).unwrap(), ramp(64));
    let buffer = theirs.buffer(&[1; 64]);
    let mut adopted: Buf<u32> = Buffer::<u32, Wgpu>::from_wgpu(&mut s, buffer.clone()).unwrap();
    s.fill(&mut adopted, 5).unwrap();
    buffer.destroy();
    match s.read_async(&x).map(within_long) {
        // What was encoded before was submitted in time.
        Ok(Some(Ok(read))) => assert_eq!(read, ramp(64)),
        Ok(Some(Err(error))) | Err(error) => assert_eq!(error.kind(), ErrorKind::Lost, "{error}"),
        Ok(None) => panic!("the read never ended"),
    }
}
