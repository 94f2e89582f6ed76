//! The stages as kernels run them: over rows of the output, which several threads may share out among themselves.
//!
//! In every function `dst_rows` is a run of whole rows of the output, the first of which is row `first_row`; the inputs
//! are whole planes of `width`-long rows. `dst_rows` is written completely and read nowhere. The functions panic if an
//! input is smaller than the rows asked of it.
//!
//! `kernels.cu` and `kernels.wgsl` agree to the last bit: they keep the order of operations, do not contract `a * b + c`, and
//! round roots and quotients correctly, as every operation here is rounded.
#![expect(
    clippy::indexing_slicing,
    reason = "rows come from the caller's grid: one check a row here keeps checks out of the inner loops"
)]

/// Bins of the histogram of magnitudes.
pub const BINS: usize = 256;

const LAST_BIN: u32 = BINS as u32 - 1;

/// The 5-tap blur along each row.
pub fn blur_rows(src: &[f32], dst_rows: &mut [f32], width: usize, first_row: usize) {
    for (y, dst) in numbered(dst_rows, width, first_row) {
        let src = row(src, width, y);
        for (dst, taps) in dst.iter_mut().skip(2).zip(src.windows(5)) {
            *dst = blend(taps[0], taps[1], taps[2], taps[3], taps[4]);
        }
        // The two columns at either border, as far as there are that many.
        for x in (0..width.min(2)).chain(width.saturating_sub(2).max(2)..width) {
            let [far_left, left, right, far_right] = around(x, width);
            dst[x] = blend(src[far_left], src[left], src[x], src[right], src[far_right]);
        }
    }
}

/// The 5-tap blur along each column of a plane of `height` rows.
pub fn blur_columns(src: &[f32], dst_rows: &mut [f32], width: usize, height: usize, first_row: usize) {
    for (y, dst) in numbered(dst_rows, width, first_row) {
        let [top, above, below, bottom] = around(y, height).map(|y| row(src, width, y));
        let here = row(src, width, y);
        for (x, dst) in dst.iter_mut().enumerate() {
            *dst = blend(top[x], above[x], here[x], below[x], bottom[x]);
        }
    }
}

/// Brightness, from the three colours.
pub fn luminance_rows(r: &[f32], g: &[f32], b: &[f32], dst_rows: &mut [f32], width: usize, first_row: usize) {
    for (y, dst) in numbered(dst_rows, width, first_row) {
        let [r, g, b] = [r, g, b].map(|plane| row(plane, width, y));
        for (x, dst) in dst.iter_mut().enumerate() {
            *dst = 0.299 * r[x] + 0.587 * g[x] + 0.114 * b[x];
        }
    }
}

/// Sobel's derivative to the right, of a plane of `height` rows.
pub fn sobel_x_rows(src: &[f32], dst_rows: &mut [f32], width: usize, height: usize, first_row: usize) {
    for (y, dst) in numbered(dst_rows, width, first_row) {
        let [_, above, below, _] = around(y, height).map(|y| row(src, width, y));
        let here = row(src, width, y);
        let column = |x: usize| above[x] + 2.0 * here[x] + below[x];
        // Each column's sum serves twice: as the right side of one pixel and as the left side of the next but one.
        let (mut left, mut middle) = (column(0), column(0));
        for (x, dst) in dst.iter_mut().enumerate() {
            let right = column((x + 1).min(width - 1));
            *dst = right - left;
            (left, middle) = (middle, right);
        }
    }
}

/// Sobel's derivative downwards, of a plane of `height` rows.
pub fn sobel_y_rows(src: &[f32], dst_rows: &mut [f32], width: usize, height: usize, first_row: usize) {
    for (y, dst) in numbered(dst_rows, width, first_row) {
        let [_, above, below, _] = around(y, height).map(|y| row(src, width, y));
        for (x, dst) in dst.iter_mut().enumerate() {
            let [_, left, right, _] = around(x, width);
            let lower = below[left] + 2.0 * below[x] + below[right];
            let upper = above[left] + 2.0 * above[x] + above[right];
            *dst = lower - upper;
        }
    }
}

/// The length of the gradient.
pub fn magnitude_rows(
    gradient_x: &[f32],
    gradient_y: &[f32],
    dst_rows: &mut [f32],
    width: usize,
    first_row: usize,
) {
    for (y, dst) in numbered(dst_rows, width, first_row) {
        let gradients = row(gradient_x, width, y).iter().zip(row(gradient_y, width, y));
        for (dst, (across, down)) in dst.iter_mut().zip(gradients) {
            *dst = f32::sqrt(across * across + down * down);
        }
    }
}

/// Counts the magnitudes of a whole plane into `histogram`, whose [`BINS`] counts are overwritten.
pub fn histogram(magnitude: &[f32], histogram: &mut [u32]) {
    histogram.fill(0);
    for &magnitude in magnitude {
        histogram[bin(magnitude) as usize] += 1;
    }
}

/// The last bin that is no edge, by Otsu's method (IEEE Trans. SMC 9 (1), 1979, 62-66), or the last of all bins where
/// all counts are in one.
///
/// One walk over the bins: what one class gains, the other loses.
pub fn otsu(histogram: &[u32]) -> u32 {
    let weighted = |bin: usize, count: u32| bin as u64 * u64::from(count);
    let mut above: u64 = histogram.iter().map(|&count| u64::from(count)).sum();
    let mut above_sum: u64 = histogram.iter().enumerate().map(|(bin, &count)| weighted(bin, count)).sum();
    let (mut below, mut below_sum) = (0u64, 0u64);
    let (mut widest, mut threshold) = (0.0f32, LAST_BIN);
    for (bin, &count) in histogram.iter().enumerate() {
        let (moved, moved_sum) = (u64::from(count), weighted(bin, count));
        (below, below_sum) = (below + moved, below_sum + moved_sum);
        (above, above_sum) = (above - moved, above_sum - moved_sum);
        if above == 0 {
            break;
        }
        if below > 0 {
            let gap = above_sum as f32 / above as f32 - below_sum as f32 / below as f32;
            let variance = (below as f32 * above as f32) * (gap * gap);
            if variance > widest {
                (widest, threshold) = (variance, bin as u32);
            }
        }
    }
    threshold
}

/// 255 where a magnitude's bin lies beyond `threshold`, else 0.
pub fn edges_rows(magnitude: &[f32], threshold: u32, dst_rows: &mut [u8], width: usize, first_row: usize) {
    for (y, dst) in numbered(dst_rows, width, first_row) {
        for (dst, &magnitude) in dst.iter_mut().zip(row(magnitude, width, y)) {
            *dst = u8::from(bin(magnitude) > threshold) * 255;
        }
    }
}

/// The rows of a run, each with its number; none if rows have no length.
fn numbered<T>(rows: &mut [T], width: usize, first_row: usize) -> impl Iterator<Item = (usize, &mut [T])> {
    (first_row..).zip(rows.chunks_exact_mut(width.max(1)))
}

fn row(plane: &[f32], width: usize, y: usize) -> &[f32] {
    &plane[y * width..][..width]
}

/// The places two before, one before, one after and two after `i`, within `0..len`.
fn around(i: usize, len: usize) -> [usize; 4] {
    let last = len - 1;
    [i.saturating_sub(2), i.saturating_sub(1), (i + 1).min(last), (i + 2).min(last)]
}

fn blend(a: f32, b: f32, c: f32, d: f32, e: f32) -> f32 {
    0.0625 * a + 0.25 * b + 0.375 * c + 0.25 * d + 0.0625 * e
}

/// A magnitude's bin, two units wide; whatever lies beyond the last bin counts there.
fn bin(magnitude: f32) -> u32 {
    (magnitude as u32 >> 1).min(LAST_BIN)
}
