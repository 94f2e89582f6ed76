//! The kernels, and what they do to bytes.

use dacapo::host::Chunk;

use super::support::subject;
use super::support::{Device, In, InOut, Kernel, Len, Out, Program, Uniform};
use super::zoo::each;

pub struct Kernels {
    /// `x ^= k`.
    pub mask: Kernel<Mask>,
    /// `z = x ^ y`.
    pub mix: Kernel<Mix>,
    /// `y = x ^ k`, in parallel over chunks.
    pub shift: Kernel<Shift>,
    /// `x ^= t`, for all `t` of a table.
    pub tint: Kernel<Tint>,
    /// `x += k`, over words.
    pub words: Kernel<Words>,
    /// Fails, and leaves unwritten what it was to write.
    pub breaks: subject::Breaks,
}

type Mask = (InOut<u8>, u32, Len<0>);
type Mix = (In<u8>, In<u8>, Out<u8>, Len<0>, Len<1>, Len<2>);
type Shift = (In<u8>, Out<u8>, u32, Len<0>, Len<1>);
type Tint = (InOut<u8>, Uniform<u8>, Len<0>, Len<1>);
type Words = (InOut<u32>, u32, Len<0>);

impl Kernels {
    pub fn load(device: &Device) -> dacapo::Result<Self> {
        Ok(Kernels {
            mask: mask_program().load(device)?,
            mix: mix_program().load(device)?,
            shift: shift_program().load(device)?,
            tint: tint_program().load(device)?,
            words: words_program().load(device)?,
            breaks: subject::Breaks::load(device)?,
        })
    }
}

fn mask_program() -> Program<Mask> {
    let program = Program::<Mask>::new("mask").host(|(x, k, _), _| xor(x, k as u8));
    each(program, "u8* x, unsigned k, u64 n", "n", "x[i] ^= k;")
}

fn mix_program() -> Program<Mix> {
    let program = Program::<Mix>::new("mix").host(|(x, y, z, ..), _| mixed(x, y, z));
    let params = "const u8* x, const u8* y, u8* z, u64 nx, u64 ny, u64 n";
    each(program, params, "min(n, min(nx, ny))", "z[i] = x[i] ^ y[i];")
}

fn shift_program() -> Program<Shift> {
    let program = Program::<Shift>::new("shift").host_chunks(
        |(x, y, k, ..): (&[u8], &mut [u8], u32, usize, usize), chunk: Chunk| {
            y.copy_from_slice(&x[chunk.rows()]);
            xor(y, k as u8);
        },
    );
    let params = "const u8* x, u8* y, unsigned k, u64 nx, u64 n";
    each(program, params, "min(n, nx)", "y[i] = x[i] ^ k;")
}

fn tint_program() -> Program<Tint> {
    let program = Program::<Tint>::new("tint").host(|(x, table, ..), _| tint(x, table));
    let params = "u8* x, const u8* t, u64 n, u64 nt";
    each(program, params, "n", "for (u64 k = 0; k < nt; k++) { x[i] ^= t[k]; }")
}

fn words_program() -> Program<Words> {
    let program = Program::<Words>::new("words").host(|(x, k, _), _| add(x, k));
    each(program, "unsigned* x, unsigned k, u64 n", "n", "x[i] += k;")
}

/// In words, since a debug build takes as long for a byte as for a word.
pub fn xor(bytes: &mut [u8], k: u8) {
    let (head, words, tail) = bytemuck::pod_align_to_mut::<u8, u64>(bytes);
    head.iter_mut().chain(tail).for_each(|byte| *byte ^= k);
    let k = u64::from_ne_bytes([k; 8]);
    words.iter_mut().for_each(|word| *word ^= k);
}

pub fn tint(bytes: &mut [u8], table: &[u8]) {
    xor(bytes, table.iter().fold(0, |all, t| all ^ t));
}

pub fn mixed(x: &[u8], y: &[u8], z: &mut [u8]) {
    z.copy_from_slice(x);
    let (whole, rest) = z.as_chunks_mut::<8>();
    let (ys, y_rest) = y.as_chunks::<8>();
    for (z, y) in whole.iter_mut().zip(ys) {
        *z = (u64::from_ne_bytes(*z) ^ u64::from_ne_bytes(*y)).to_ne_bytes();
    }
    rest.iter_mut().zip(y_rest).for_each(|(z, y)| *z ^= y);
}

pub fn add(words: &mut [u32], k: u32) {
    words.iter_mut().for_each(|word| *word = word.wrapping_add(k));
}
