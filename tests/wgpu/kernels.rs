//! Kernels from WGSL: what is refused, by whom, and what comes of the launches beside it.

use dacapo::prelude::*;
use dacapo::wgpu::{Wgpu, wgpu};
use dacapo::{Error, ErrorKind, Result};

use crate::support::{Program as Theirs, message, ramp, written};

const LEN: usize = 1000;
const CANARY: u32 = 0xDEAD_BEEF;

const BAD: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = nothing; }";

const LARGE: &str = "
var<private> mine: array<u32, 100000000>;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    mine[id.x] = id.x;
    out[id.x] = mine[out[id.x]];
}";

const CROWDED: &str = "
var<workgroup> ours: array<u32, 100000000>;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    ours[id.x] = id.x;
    out[id.x] = ours[out[id.x]];
}";

/// Two kernels of one text, whose bindings are at the same places.
const PAIR: &str = "
struct Scalars { by: u32, len: u32 }
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<uniform> scalars: Scalars;
@group(0) @binding(0) var<storage, read> in_: array<u32>;
@group(0) @binding(1) var<storage, read_write> sum: atomic<u32>;
override width = 256u;

@compute @workgroup_size(256)
fn count(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < scalars.len { out[id.x] = scalars.by * (id.x + 1u); }
}

@compute @workgroup_size(width)
fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&in_) { atomicAdd(&sum, in_[id.x]); }
}";

type Count<B> = Kernel<(Out<u32>, u32, Len<0>), B>;

fn count(device: &Device<Wgpu>) -> Count<Wgpu> {
    Program::new("count").wgsl(PAIR, "count").load(device).unwrap()
}

/// A buffer with the bytes of one that was full of canaries, and what it holds after a good launch.
fn recycled(stream: &mut impl Enqueue<Wgpu>) -> Result<Buffer<u32, Wgpu>> {
    let mut canary = stream.alloc_scratch::<u32>(LEN)?;
    stream.fill(&mut canary, CANARY)?;
    drop(canary);
    stream.alloc_scratch(LEN)
}

fn refused(device: &Device<Wgpu>, text: &str, says: &str) -> Error {
    let error = Program::<(Out<u32>,)>::new("bad").wgsl(text, "main").load(device).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
    assert!(message(&error).starts_with("`bad`: "), "{error}");
    assert!(error.to_string().contains(says), "{error}");
    error
}

fn wgpu_06(text: &str, says: &str) {
    let device = crate::device!();
    let count = count(&device);
    let mut stream = device.stream().unwrap();

    let mut out = recycled(&mut stream).unwrap();
    refused(&device, text, says);
    stream.launch(&count, Grid::covering(LEN), (&mut out, 1u32, Len)).unwrap();
    assert_eq!(stream.read(&out).unwrap(), ramp(LEN), "eager");

    let mut out = recycled(&mut stream).unwrap();
    let recorded = stream.record(|work| {
        let refusal = refused(&device, text, says);
        work.launch(&count, Grid::covering(LEN), (&mut out, 2u32, Len))?;
        Err::<(), _>(refusal)
    });
    assert!(recorded.map(drop).unwrap_err().to_string().contains(says));
    stream.launch(&count, Grid::covering(LEN), (&mut out, 1u32, Len)).unwrap();
    assert_eq!(stream.read(&out).unwrap(), ramp(LEN), "after a window");

    let mut out = recycled(&mut stream).unwrap();
    let (mut graph, ()) = stream
        .record(|work| {
            refused(&device, text, says);
            work.launch(&count, Grid::covering(LEN), (&mut out, 1u32, Len))
        })
        .unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&out).unwrap(), ramp(LEN), "in a window that went on");
}

/// A kernel that is skipped in silence shows what its output held before.
#[test]
fn wgpu_06_wgsl_that_is_wrong_is_an_error_and_the_launches_beside_it_are_right() {
    wgpu_06(BAD, "no definition in scope for identifier: `nothing`");
}

/// A driver that compiles such a kernel may lose the device, or end the process.
#[test]
fn wgpu_06_private_memory_that_no_thread_has_is_an_error_and_the_launches_beside_it_are_right() {
    wgpu_06(LARGE, "each thread of the shader has 400000000 bytes of variables of its own");
}

/// wgpu does not compare it with the limit, and a driver that compiles it may take all of the machine's memory.
#[test]
fn wgpu_06_workgroup_memory_that_no_block_has_is_an_error_and_the_launches_beside_it_are_right() {
    wgpu_06(CROWDED, "the shader has 400000000 bytes of workgroup variables");
}

/// What only wgpu knows comes with its words, and not to a handler of the program's.
#[test]
fn a_block_above_the_limit_is_an_error_in_wgpus_words() {
    let limited = |limits| wgpu::Limits { max_compute_invocations_per_workgroup: 256, ..limits };
    let Some(program) = Theirs::with(limited) else { return };
    let device = program.open();
    let text = BAD.replace("nothing", "id.x").replace("256", "1024");
    let large = Program::<(Out<u32>,)>::new("large").block(1024, 1, 1).wgsl(text, "main");
    let error = large.load(&device).unwrap_err();
    assert!(message(&error).starts_with("`large`: ") && message(&error).contains("1024"), "{error}");
    assert_eq!(program.errors(), 0);
}

/// Text with several entry points and constants goes to wgpu as a module that was taken apart.
#[test]
fn kernels_of_one_text_keep_apart() {
    let device = crate::device!();
    let count = count(&device);
    let add = Program::<(In<u32>, InOut<u32>)>::new("add").wgsl(PAIR, "add").load(&device).unwrap();
    let mut stream = device.stream().unwrap();
    let mut x = stream.alloc_scratch::<u32>(LEN).unwrap();
    let mut sum = stream.alloc::<u32>(1).unwrap();
    stream.launch(&count, Grid::covering(LEN), (&mut x, 3u32, Len)).unwrap();
    stream.launch(&add, Grid::covering(LEN), (&x, &mut sum)).unwrap();
    assert_eq!(stream.read(&sum).unwrap(), [3 * ramp(LEN).iter().sum::<u32>()]);
}

const SCALARS: &str = "
struct Scalars { a: u32, v: vec3<u32>, len: u32, w: vec2<u32>, b: u32 }
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<uniform> s: Scalars;
@compute @workgroup_size(1)
fn main() {
    var all = array(s.a, s.v.x, s.v.y, s.v.z, s.len, s.w.x, s.w.y, s.b);
    for (var i = 0u; i < 8u; i += 1u) { out[i] = all[i]; }
}";

fn scalars_arrive(device: &Device<Wgpu>) {
    type S = (u32, Out<u32>, [u32; 3], Len<1>, [u32; 2], u32);
    let program = Program::<S>::new("scalars").block(1, 1, 1);
    let texts = [SCALARS.to_owned(), SCALARS.replace("@group(0) @binding(1) var<uniform>", "var<immediate>")];
    for text in texts {
        let kernel = program.clone().wgsl(text, "main").load(device).unwrap();
        let mut stream = device.stream().unwrap();
        let mut out = stream.alloc_scratch::<u32>(8).unwrap();
        for n in [1, 100] {
            let args = (n, &mut out, [n + 1, n + 2, n + 3], Len, [n + 4, n + 5], n + 6);
            stream.launch(&kernel, Grid::covering(1), args).unwrap();
            let found = stream.read(&out).unwrap();
            assert_eq!(found, [n, n + 1, n + 2, n + 3, 8, n + 4, n + 5, n + 6]);
        }
    }
}

/// Members are not where the host packs scalars, and a device without immediates takes another way.
#[test]
fn scalars_arrive_with_and_without_immediates_however_they_are_declared() {
    scalars_arrive(&crate::device!());
    // wgpu's defaults have no immediates.
    let program = crate::program!();
    assert!(!program.device.features().contains(wgpu::Features::IMMEDIATES));
    scalars_arrive(&program.open());
}

/// The text of a kernel that adds up all of its inputs.
fn sum_of(inputs: usize) -> String {
    let declared = |i: usize| format!("@group(0) @binding({i}) var<storage, read> x{i}: array<u32>;\n");
    let terms: Vec<_> = (0..inputs).map(|i| format!("x{i}[id.x]")).collect();
    format!(
        "{}struct Scalars {{ by: u32 }}
        @group(0) @binding({inputs}) var<storage, read_write> out: array<u32>;
        @group(0) @binding({}) var<uniform> s: Scalars;
        @compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            if id.x < arrayLength(&out) {{ out[id.x] = s.by * ({}); }}
        }}",
        (0..inputs).map(declared).collect::<String>(),
        inputs + 1,
        terms.join(" + ")
    )
}

/// A buffer of the library's own that takes a place makes the limit one less than it says.
#[test]
fn shape_06_a_kernel_can_have_as_many_buffers_as_the_device_binds() {
    type Three = (In<u32>, In<u32>, Out<u32>, u32);
    type Four = (In<u32>, In<u32>, In<u32>, Out<u32>, u32);
    type Five = (In<u32>, In<u32>, In<u32>, In<u32>, Out<u32>, u32);
    let limited = |limits| wgpu::Limits { max_storage_buffers_per_shader_stage: 4, ..limits };
    let Some(program) = Theirs::with(limited) else { return };
    let device = program.open();
    let three = Program::<Three>::new("sum").wgsl(sum_of(2), "main").load(&device).unwrap();
    let four = Program::<Four>::new("sum").wgsl(sum_of(3), "main").load(&device).unwrap();
    let five = Program::<Five>::new("sum").wgsl(sum_of(4), "main").load(&device).unwrap_err();
    assert!(message(&five).contains("it has 5 buffers, and a kernel of this device can have 4"), "{five}");

    let mut stream = device.stream().unwrap();
    // The first ones of pages, and right behind each other.
    let inputs = [0; 3].map(|_| written(&mut stream, &ramp(3)));
    let [x, y, z] = &inputs;
    let mut out = stream.alloc_scratch::<u32>(3).unwrap();
    stream.launch(&three, Grid::covering(3), (x, y, &mut out, 1u32)).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [2, 4, 6]);
    stream.launch(&four, Grid::covering(3), (x, y, z, &mut out, 1u32)).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [3, 6, 9]);
    let mut graph = stream
        .record(|work| work.launch(&four, Grid::covering(3), (x, y, z, &mut out, 2u32)))
        .map(|(graph, ())| graph)
        .unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [6, 12, 18]);
    assert_eq!(program.errors(), 0);
}

/// A variable with a length of its own is read beyond its argument.
#[test]
fn an_argument_has_at_least_the_bytes_that_its_variable_declares() {
    let text = "
        @group(0) @binding(0) var<storage, read> x: array<u32, 8>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { out[0] = x[7]; }";
    let device = crate::device!();
    let last = Program::<(In<u32>, Out<u32>)>::new("last").block(1, 1, 1).wgsl(text, "main").load(&device);
    let last = last.unwrap();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(8));
    let mut out = stream.alloc_scratch::<u32>(1).unwrap();
    let short = stream.launch(&last, Grid::covering(1), (x.slice(..7).unwrap(), &mut out));
    let error = short.and_then(|()| stream.read(&out).map(drop)).unwrap_err();
    assert!(error.to_string().contains("32 bytes") && error.to_string().contains("28"), "{error}");
    stream.launch(&last, Grid::covering(1), (&x, &mut out)).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [8]);
}
