//! The arithmetic of the kernels on the host, which `kernels.cu` and `kernels.wgsl` repeat operation for operation.
//!
//! **Why all devices say the same tokens.** A token is the place of the largest of some sums, and a sum of floating-point
//! numbers depends on the order of its terms. So the order is part of each definition here: a product of a vector and a
//! matrix is added up in [`PARTS`] parts, a sum over a vector in [`LANES`] lanes, whatever number of threads does it.
//! Sums, products, quotients and roots are rounded correctly by all devices (`rounding.wgsl` sees to it where the language
//! does not promise it), and a product is rounded before it is added to anything. What is not rounded alike everywhere, the
//! exponential of a library, is not used: [`exponential`] is made of sums and products. Nothing is left to differ: logits
//! agree to the last bit, and tokens with them.
#![expect(clippy::indexing_slicing, reason = "a kernel that is given too little memory fails as a whole")]

/// Threads of a warp: lanes of a sum over a vector, and columns that are added up side by side.
pub const LANES: usize = 32;

/// Parts of the sum of a product.
pub const PARTS: usize = 8;

/// Keeps the scale of a vector of zeros finite.
const EPSILON: f32 = 1e-5;

/// `e` to the power of `x`, within a few units in the last place: the power of two that is nearest, times a series.
pub fn exponential(x: f32) -> f32 {
    // In two pieces, the first of which has so few digits that its multiples are exact.
    const LN_2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];
    const SERIES: [f32; 8] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    if x < -87.0 {
        return 0.0;
    }
    let x = x.min(88.0);
    let n = (x * std::f32::consts::LOG2_E + 0.5).floor();
    let r = x - n * LN_2[0] - n * LN_2[1];
    let series = SERIES.iter().fold(0.0, |sum, factor| sum * r + factor);
    series * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

/// The sum of `values`: every lane adds up its own, and lanes are added in halves.
pub fn sum(values: impl Iterator<Item = f32>) -> f32 {
    let mut lanes = [0.0; LANES];
    for (i, value) in values.enumerate() {
        lanes[i % LANES] += value;
    }
    let mut width = LANES / 2;
    while width > 0 {
        let (low, high) = lanes.split_at_mut(width);
        low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
        width /= 2;
    }
    lanes[0]
}

/// For each column of `out`, from column `first` of a matrix with rows of `stride` on: the sum of `x[i]` times row `i`.
pub fn product(x: &[f32], matrix: &[f32], stride: usize, first: usize, out: &mut [f32]) {
    let part = x.len().div_ceil(PARTS);
    for (at, out) in (first..).step_by(LANES).zip(out.chunks_mut(LANES)) {
        out.fill(0.0);
        for start in (0..PARTS).map(|index| index * part) {
            let mut sums = [0.0; LANES];
            for i in start..(start + part).min(x.len()) {
                let row = &matrix[i * stride + at..][..out.len()];
                sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += x[i] * weight);
            }
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
        }
    }
}

/// Scales `x` to a mean square of 1, and each element by its gain.
pub fn normalize(x: &[f32], gain: &[f32], y: &mut [f32]) {
    let mean = sum(x.iter().map(|x| x * x)) / x.len() as f32;
    let scale = 1.0 / (mean + EPSILON).sqrt();
    y.iter_mut().zip(x).zip(gain).for_each(|((y, x), gain)| *y = x * scale * gain);
}

/// Makes scores weights, whose sum is 1: `softmax`.
pub fn soften(scores: &mut [f32]) {
    let largest = scores.iter().fold(f32::NEG_INFINITY, |largest, score| largest.max(*score));
    scores.iter_mut().for_each(|score| *score = exponential(*score - largest));
    let total = sum(scores.iter().copied());
    scores.iter_mut().for_each(|score| *score /= total);
}

/// `up` through a gate: `up` times `gate / (1 + e^-gate)`.
pub fn swish(gate: f32, up: f32) -> f32 {
    gate / (1.0 + exponential(-gate)) * up
}

/// The first of the largest logits.
pub fn largest(logits: &[f32]) -> u32 {
    let better = |best: (u32, f32), next: (u32, f32)| if next.1 > best.1 { next } else { best };
    (0..).zip(logits.iter().copied()).fold((0, f32::NEG_INFINITY), better).0
}
