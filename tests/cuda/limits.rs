//! What a launch may be: checks, shared memory, and launches that somebody answers for.

use dacapo::cuda::{Cuda, SourceText};
use dacapo::prelude::*;
use dacapo::{Error, LaunchUnchecked, Unchecked};

use crate::kernels::refused;
use crate::support::{Buf, ramp, written};

const SOURCE: &str = r#"
typedef unsigned long long u64;

// Turns each tile of x round.
extern "C" __global__ void turn(const float* x, float* y, unsigned tile) {
    extern __shared__ float kept[];
    u64 from = blockIdx.x * (u64)tile;
    for (unsigned i = threadIdx.x; i < tile; i += blockDim.x) kept[i] = x[from + i];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < tile; i += blockDim.x) y[from + i] = kept[tile - 1 - i];
}
extern "C" __global__ void both(float* y, u64 n) {
    __shared__ float own[256];
    extern __shared__ float more[];
    unsigned t = threadIdx.x;
    own[t] = t;
    more[t] = 1000 * t;
    __syncthreads();
    if (t < n) y[t] = own[255 - t] + more[255 - t];
}
// Trusts its n, and counts its blocks.
extern "C" __global__ void scale(float* x, unsigned n, float a, unsigned* blocks) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
    if (threadIdx.x == 0) atomicAdd(blocks, 1u);
}
"#;

type Turn = (In<f32>, Out<f32>, u32);
type Scale = (InOut<f32>, u32, f32, InOut<u32>);

/// Turns tiles round in `bytes` bytes of shared memory.
fn turn(bytes: usize) -> Program<Turn> {
    let program = Program::<Turn>::new("turn").shared_memory(bytes).check(move |grid, (x, y, tile)| {
        let tile = tile as usize;
        match () {
            () if tile == 0 || 4 * tile > bytes => Err(format!("tiles of {tile} elements in {bytes} bytes")),
            () if x != y || !x.is_multiple_of(tile) => {
                Err(format!("tiles of {tile} in {x} and {y} elements"))
            }
            () if grid.blocks() != [(x / tile) as u64, 1, 1] => Err("a block for each tile".to_owned()),
            () => Ok(()),
        }
    });
    // SAFETY: by the check there are as many elements in `x` and in `y` as the blocks have in their tiles, and one tile is
    // within the shared memory. Each element is one thread's, but for the shared ones, which a barrier keeps apart.
    unsafe { program.cuda(SOURCE, "turn") }
}

fn scale() -> Program<Scale, Unchecked> {
    Program::<Scale>::new("scale").cuda_unchecked(SOURCE, "scale")
}

fn turned(x: &[f32], tile: usize) -> Vec<f32> {
    x.chunks(tile).flat_map(|tile| tile.iter().rev().copied()).collect()
}

/// The most shared memory that a block can have, as the refusal of too much says.
fn allowed(device: &Device<Cuda>) -> usize {
    let message = refused(turn(1 << 30), device);
    assert!(message.contains("`turn` has 1073741824 bytes of shared memory in a block"), "{message}");
    message.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Above 48 KiB a function must be told first, which one launch path could forget.
#[test]
fn a_kernel_gets_the_shared_memory_that_its_program_asks_for_eagerly_and_in_graphs() {
    let (device, _) = crate::device!();
    let mut stream = device.stream().unwrap();
    for bytes in [1024, 48 << 10, 96 << 10, allowed(&device)] {
        let turn = turn(bytes).load(&device).unwrap();
        let tile = bytes / 4;
        let data = ramp(5 * tile);
        let mut x = written(&mut stream, &data);
        let mut y = stream.alloc::<f32>(5 * tile).unwrap();
        let grid = Grid::blocks(5);
        stream.launch(&turn, grid, (&x, &mut y, tile as u32)).unwrap();
        assert!(stream.read(&y).unwrap() == turned(&data, tile), "{bytes} bytes, eagerly");
        let (mut graph, ()) =
            stream.record(|work| work.launch(&turn, grid, (&x, &mut y, tile as u32))).unwrap();
        drop(turn);
        for factor in [2.0, 3.0] {
            let data: Vec<f32> = data.iter().map(|x| factor * x).collect();
            stream.write(&mut x, &data).unwrap();
            graph.replay(&mut stream).unwrap();
            assert!(stream.read(&y).unwrap() == turned(&data, tile), "{bytes} bytes, replayed");
        }
    }
}

/// The driver refuses such a launch with "invalid value", which says neither what nor how much.
#[test]
fn more_shared_memory_than_a_block_can_have_is_refused_at_load_with_both_numbers() {
    let (device, _) = crate::device!();
    let mut stream = device.stream().unwrap();
    let allowed = allowed(&device);
    let message = refused(turn(allowed + 1), &device);
    assert!(message.contains(&format!("has {} bytes", allowed + 1)), "{message}");
    assert!(refused(turn(usize::MAX), &device).contains("this device allows"));
    // What the code declares counts too: a kilobyte here.
    let both = |bytes| {
        let program = Program::<(Out<f32>, Len<0>)>::new("both")
            .shared_memory(bytes)
            .check(|grid, _| if grid.blocks() == [1; 3] { Ok(()) } else { Err("one block is enough") });
        // SAFETY: 256 threads touch one element each, of 1024 bytes that the function has and as many that it is given, and
        // of `y` if it has so many; no two blocks meet.
        unsafe { program.cuda(SOURCE, "both") }
    };
    let message = refused(both(allowed - 1023), &device);
    let (sum, added) = (allowed + 1, allowed - 1023);
    assert!(
        message.contains(&format!("{sum} bytes of shared memory in a block, {added} of them")),
        "{message}"
    );
    let most = both(allowed - 1024).load(&device).unwrap();
    let mut y = stream.alloc::<f32>(256).unwrap();
    stream.launch(&most, Grid::blocks(1), (&mut y, Len)).unwrap();
    let expected: Vec<f32> = (0..256).rev().map(|t| 1001.0 * t as f32).collect();
    assert_eq!(stream.read(&y).unwrap(), expected);
}

/// A promise is one for the blocks and the memory that there were: safe code that changes them would break it.
#[test]
fn what_a_source_promised_for_cannot_be_changed_afterwards() {
    let (device, _) = crate::device!();
    for changed in [turn(4096).shared_memory(16), turn(4096).block(512, 1, 1)] {
        let message = refused(changed, &device);
        assert!(message.contains("`turn`") && message.contains("set them before"), "{message}");
    }
    // To what it was, or where nothing was promised, is no change.
    assert!(turn(4096).block(256, 1, 1).load(&device).is_ok());
    assert!(scale().block(32, 1, 1).shared_memory(16).load(&device).is_ok());
}

#[test]
fn a_launch_that_a_check_refuses_never_reaches_the_device() {
    let (device, _) = crate::device!();
    let mut stream = device.stream().unwrap();
    let turn = turn(4096).load(&device).unwrap();
    let x = written(&mut stream, &ramp(2048));
    let mut y = stream.alloc::<f32>(2048).unwrap();
    for (grid, tile) in [(Grid::blocks(2), 1025), (Grid::blocks(2), 0), (Grid::blocks(1 << 20), 1024)] {
        let error = stream.launch(&turn, grid, (&x, &mut y, tile)).unwrap_err();
        assert!(matches!(error, Error::CheckFailed { .. }), "{error}");
        assert!(matches!(stream.read(&y).unwrap_err().root(), Error::CheckFailed { .. }));
        let refused = stream.record(|work| work.launch(&turn, grid, (&x, &mut y, tile)));
        assert!(matches!(refused.unwrap_err().root(), Error::CheckFailed { .. }));
    }
    stream.launch(&turn, Grid::blocks(2), (&x, &mut y, 1024)).unwrap();
    assert_eq!(stream.read(&y).unwrap(), turned(&ramp(2048), 1024));
}

#[test]
fn a_kernel_that_promises_nothing_is_launched_by_who_does_eagerly_and_in_graphs() {
    let (device, _) = crate::device!();
    let mut stream = device.stream().unwrap();
    let scale = scale().block(128, 1, 1).load(&device).unwrap();
    assert_eq!(scale.block(), [128, 1, 1]);
    let data = ramp(1000);
    let mut x = written(&mut stream, &data);
    let mut blocks = stream.alloc::<u32>(1).unwrap();
    fn step(
        s: &mut impl Enqueue<Cuda>,
        scale: &dacapo::UncheckedKernel<Scale, Cuda>,
        x: &mut Buf<f32>,
        blocks: &mut Buf<u32>,
    ) -> dacapo::Result<()> {
        let n = x.len() as u32;
        // SAFETY: `n` elements are there, each of which is one thread's, `blocks` has one, which is counted up atomically,
        // and nothing of it depends on what they hold.
        unsafe { s.launch_unchecked(scale, Grid::covering(x.len()), (x, n, 2.0, blocks)) }
    }
    step(&mut stream, &scale, &mut x, &mut blocks).unwrap();
    let (mut graph, ()) = stream.record(|work| step(work, &scale, &mut x, &mut blocks)).unwrap();
    drop(scale);
    graph.replay(&mut stream).unwrap();
    graph.replay(&mut stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), data.iter().map(|x| 8.0 * x).collect::<Vec<_>>());
    assert_eq!(stream.read(&blocks).unwrap(), [3 * 8]);
}

/// An option that got lost would compile into another kernel in silence.
#[test]
fn options_and_definitions_reach_the_compiler() {
    let (device, _) = crate::device!();
    let mut stream = device.stream().unwrap();
    let text =
        "extern \"C\" __global__ void set(unsigned* x, unsigned long long n) { if (n > 0) x[0] = VALUE; }";
    let program = |source: SourceText| {
        let program = Program::<(InOut<u32>, Len<0>)>::new("set");
        // SAFETY: it sets the first element, if there is one, to the same number from every thread.
        unsafe { program.cuda(source, "set") }
    };
    let mut x = stream.alloc::<u32>(2).unwrap();
    for value in [41, 42] {
        let source = SourceText::new(text).define("VALUE", value).option("--std=c++17");
        let set = program(source).load(&device).unwrap();
        stream.launch(&set, Grid::covering(1), (&mut x, Len)).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [value, 0]);
    }
    assert!(refused(program(text.into()), &device).contains("VALUE"));
    let wrong =
        refused(program(SourceText::new(text).define("VALUE", 1).option("--no-such-option")), &device);
    assert!(wrong.contains("`set`"), "{wrong}");
    let zero = refused(program(SourceText::new(text).option("--x\0")), &device);
    assert!(zero.contains("zero byte"), "{zero}");
}
