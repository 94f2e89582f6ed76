//! The kernels, and what they do to bytes.

use std::panic::resume_unwind;

use dacapo::host::Chunk;
use dacapo::prelude::*;

pub struct Kernels {
    /// `x ^= k`.
    pub mask: Kernel<(InOut<u8>, u8)>,
    /// `z = x ^ y`.
    pub mix: Kernel<(In<u8>, In<u8>, Out<u8>)>,
    /// `y = x ^ k`, in parallel over chunks.
    pub shift: Kernel<(In<u8>, Out<u8>, u8)>,
    /// `x ^= t`, for all `t` of a table.
    pub tint: Kernel<(InOut<u8>, Uniform<u8>)>,
    /// `x += k`, over words.
    pub words: Kernel<(InOut<u32>, u32)>,
    /// Panics after it wrote a little.
    pub breaks: Kernel<(In<u8>, Out<u8>)>,
}

pub const BREAKS: &str = "breaks";

impl Kernels {
    pub fn load(device: &Device) -> dacapo::Result<Self> {
        let mask = Program::<(InOut<u8>, u8)>::new("mask").host(|(x, k), _| xor(x, k));
        let mix = Program::<(In<u8>, In<u8>, Out<u8>)>::new("mix").host(|(x, y, z), _| mixed(x, y, z));
        let shift = Program::<(In<u8>, Out<u8>, u8)>::new("shift").host_chunks(
            |(x, y, k): (&[u8], &mut [u8], u8), chunk: Chunk| {
                y.copy_from_slice(&x[chunk.rows()]);
                xor(y, k);
            },
        );
        let tinted = Program::<(InOut<u8>, Uniform<u8>)>::new("tint").host(|(x, table), _| tint(x, table));
        let words = Program::<(InOut<u32>, u32)>::new("words").host(|(x, k), _| add(x, k));
        let breaks = Program::<(In<u8>, Out<u8>)>::new(BREAKS).host(|(x, y): (&[u8], &mut [u8]), _| {
            y.iter_mut().zip(x).take(3).for_each(|(y, x)| *y = !x);
            // Not `panic!`, whose hook would print a report for each of thousands.
            resume_unwind(Box::new("it always does"));
        });
        Ok(Kernels {
            mask: mask.load(device)?,
            mix: mix.load(device)?,
            shift: shift.load(device)?,
            tint: tinted.load(device)?,
            words: words.load(device)?,
            breaks: breaks.load(device)?,
        })
    }
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
