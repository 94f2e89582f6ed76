//! Copies and fills that wgpu has no command for: to and from any byte, within one buffer, in rows. And what it counts the
//! blocks of a launch by.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::Fault;
use crate::backend::wgpu::code::{Codes, WgpuCode};
use crate::kernel::{In, InOut, Out, Program};

/// The kernels of the library's own.
pub(crate) struct ByteKernels {
    /// Copies whole words.
    pub(crate) words: Arc<WgpuCode>,
    /// Repeats one word.
    pub(crate) repeat: Arc<WgpuCode>,
    /// Copies bytes in rows.
    pub(crate) rows: Arc<WgpuCode>,
    /// Copies three counts of blocks, or zeros in their place.
    pub(crate) counts: Arc<WgpuCode>,
}

/// Up to so many bytes, whole words are moved by a kernel, where the device is such: a command of wgpu's own ends the pass, which
/// costs as much as ten dispatches, and no graphics card is quicker with it. A processor has nothing quicker.
pub(crate) fn by_kernel(device: wgpu::DeviceType) -> u64 {
    match device {
        wgpu::DeviceType::Cpu => 64 << 10,
        _ => 64 << 20,
    }
}

/// Threads of a block.
const BLOCK: u32 = 256;
/// The most blocks of one launch: threads go on until all is done.
const MOST_BLOCKS: u64 = 16 << 10;

/// Where the first word is in each of the two ranges, and how many there are.
type Words = (In<u32>, InOut<u32>, u32, u32, u32);
/// The word, where the first one is, and how many there are.
type Repeat = (InOut<u32>, u32, u32, u32);
/// Where the first count is, and how many are allowed.
type Counts = (In<u32>, Out<u32>, u32, u32);
/// As [`Rows::scalars`] says.
type RowsOf = (In<u32>, InOut<u32>, u32, u32, u32, u32, u32, u32);

const WORDS: &str = "
struct Args { first: u32, to_first: u32, count: u32 }
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> target_: array<u32>;
@group(0) @binding(2) var<uniform> args: Args;

@compute @workgroup_size(256)
fn words(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) blocks: vec3<u32>) {
    for (var i = id.x; i < args.count; i += blocks.x * 256u) {
        target_[args.to_first + i] = source[args.first + i];
    }
}
";

const REPEAT: &str = "
struct Args { word: u32, first: u32, count: u32 }
@group(0) @binding(0) var<storage, read_write> target_: array<u32>;
@group(0) @binding(1) var<uniform> args: Args;

@compute @workgroup_size(256)
fn repeat(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) blocks: vec3<u32>) {
    for (var i = id.x; i < args.count; i += blocks.x * 256u) {
        target_[args.first + i] = args.word;
    }
}
";

/// Too many blocks in one dimension are none: what a dispatch with them does is for no driver to say.
const COUNTS: &str = "
struct Args { first: u32, most: u32 }
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> target_: array<u32>;
@group(0) @binding(2) var<uniform> args: Args;

@compute @workgroup_size(1)
fn counts() {
    let x = source[args.first];
    let y = source[args.first + 1u];
    let z = source[args.first + 2u];
    let allowed = max(x, max(y, z)) <= args.most;
    target_[0] = select(0u, x, allowed);
    target_[1] = select(0u, y, allowed);
    target_[2] = select(0u, z, allowed);
}
";

/// Each thread makes whole words of the target, so that no two threads write one, and keeps the bytes that are no row's.
const ROWS: &str = "
struct Args { first: u32, step: u32, to_first: u32, to_step: u32, row: u32, rows: u32 }
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> target_: array<u32>;
@group(0) @binding(2) var<uniform> args: Args;

@compute @workgroup_size(256)
fn rows(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) blocks: vec3<u32>) {
    let end = args.to_first + (args.rows - 1u) * args.to_step + args.row;
    let last = (end - 1u) / 4u;
    for (var word = args.to_first / 4u + id.x; word <= last; word += blocks.x * 256u) {
        var value = target_[word];
        for (var byte = 0u; byte < 4u; byte++) {
            let at = word * 4u + byte;
            if at < args.to_first || at >= end { continue; }
            let row = (at - args.to_first) / args.to_step;
            let column = (at - args.to_first) % args.to_step;
            if column >= args.row { continue; }
            let origin = args.first + row * args.step + column;
            let taken = (source[origin / 4u] >> (8u * (origin % 4u))) & 255u;
            value = (value & ~(255u << (8u * byte))) | (taken << (8u * byte));
        }
        target_[word] = value;
    }
}
";

impl ByteKernels {
    pub(crate) fn load(device: &wgpu::Device, codes: &Codes) -> Result<Self, Fault> {
        let words = Program::<Words>::new("dacapo: copy words").wgsl(WORDS, "words");
        let repeat = Program::<Repeat>::new("dacapo: fill words").wgsl(REPEAT, "repeat");
        let counts = Program::<Counts>::new("dacapo: count blocks").block(1, 1, 1).wgsl(COUNTS, "counts");
        let rows = Program::<RowsOf>::new("dacapo: copy bytes").wgsl(ROWS, "rows");
        Ok(ByteKernels {
            words: codes.load_own(device, &words.sources)?,
            repeat: codes.load_own(device, &repeat.sources)?,
            rows: codes.load_own(device, &rows.sources)?,
            counts: codes.load_own(device, &counts.sources)?,
        })
    }
}

/// So many blocks take care of `words` words.
pub(crate) fn blocks(words: u64) -> [u32; 3] {
    let blocks = words.div_ceil(u64::from(BLOCK)).clamp(1, MOST_BLOCKS);
    [u32::try_from(blocks).unwrap_or(1), 1, 1]
}

/// Rows of bytes that go from one range to another; the ranges are counted from the start of their bindings.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) first: u64,
    /// From the start of one row to that of the next; 0 repeats one.
    pub(crate) step: u64,
    pub(crate) to_first: u64,
    pub(crate) to_step: u64,
    pub(crate) row: u64,
    pub(crate) rows: u64,
}

impl Rows {
    /// The words of the target, whole or in part.
    pub(crate) fn words(&self) -> u64 {
        let span = (self.rows - 1) * self.to_step + self.row;
        (self.to_first % 4 + span).div_ceil(4)
    }

    /// The scalars as a launch gathers them.
    pub(crate) fn scalars(&self) -> [u64; 6] {
        [self.first, self.step, self.to_first, self.to_step, self.row, self.rows]
    }
}
