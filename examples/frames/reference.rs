//! What every stage must compute, one frame at a time, written to be read rather than to be fast.
//!
//! A coordinate beyond the border means the nearest pixel within. Numbers are `f32`, and operations happen in the order
//! in which they are written, so that another implementation can be held to the last bit.

/// Bins of the histogram.
const BINS: usize = 256;

/// Gradient per bin. The sharpest edges, beyond 512, share the last bin.
const PER_BIN: usize = 2;

/// The binomial weights, close to a Gaussian of one pixel. They are exact in `f32`, and so are both blurs of
/// 8-bit values.
const BLUR: [f32; 5] = [1.0 / 16.0, 4.0 / 16.0, 6.0 / 16.0, 4.0 / 16.0, 1.0 / 16.0];

/// Every intermediate result of one frame, so that a difference can be pinned to a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages {
    /// Red, green and blue, blurred along the rows.
    pub blurred_rows: [Vec<f32>; 3],
    /// The same, blurred along the columns as well.
    pub blurred: [Vec<f32>; 3],
    /// Brightness, of the blurred colours.
    pub luminance: Vec<f32>,
    /// How fast brightness grows to the right (Sobel).
    pub gradient_x: Vec<f32>,
    /// How fast brightness grows downwards (Sobel).
    pub gradient_y: Vec<f32>,
    /// The length of the gradient.
    pub magnitude: Vec<f32>,
    /// How many magnitudes fall into each of the 256 bins.
    pub histogram: Vec<u32>,
    /// The last bin that does not count as an edge.
    pub threshold: u32,
    /// 255 on an edge, 0 elsewhere.
    pub edges: Vec<u8>,
}

impl Stages {
    /// Takes the planes of one frame, each of `width * height` values in `0..=255`, through all stages.
    pub fn of([r, g, b]: [&[f32]; 3], width: usize, height: usize) -> Self {
        let blurred_rows = [r, g, b].map(|plane| blur_rows(Plane { values: plane, width, height }));
        let blurred =
            blurred_rows.each_ref().map(|plane| blur_columns(Plane { values: plane, width, height }));
        let luminance = luminance(&blurred);
        let brightness = Plane { values: &luminance, width, height };
        let (gradient_x, gradient_y) = (sobel_x(brightness), sobel_y(brightness));
        let magnitude = magnitude(&gradient_x, &gradient_y);
        let histogram = histogram(&magnitude);
        let threshold = otsu(&histogram);
        let edges = edges(&magnitude, threshold);
        Self {
            blurred_rows,
            blurred,
            luminance,
            gradient_x,
            gradient_y,
            magnitude,
            histogram,
            threshold,
            edges,
        }
    }
}

#[derive(Clone, Copy)]
struct Plane<'a> {
    values: &'a [f32],
    width: usize,
    height: usize,
}

impl Plane<'_> {
    #[expect(
        clippy::indexing_slicing,
        reason = "both coordinates are clamped to the plane on the two lines above"
    )]
    fn at(&self, x: isize, y: isize) -> f32 {
        let x = x.clamp(0, self.width as isize - 1) as usize;
        let y = y.clamp(0, self.height as isize - 1) as usize;
        self.values[y * self.width + x]
    }

    /// A new plane with `pixel(x, y)` at every place.
    fn map(&self, pixel: impl Fn(isize, isize) -> f32) -> Vec<f32> {
        let (width, height) = (self.width as isize, self.height as isize);
        (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| pixel(x, y)).collect()
    }
}

fn blur_rows(plane: Plane) -> Vec<f32> {
    plane.map(|x, y| (-2..).zip(BLUR).map(|(offset, weight)| weight * plane.at(x + offset, y)).sum())
}

fn blur_columns(plane: Plane) -> Vec<f32> {
    plane.map(|x, y| (-2..).zip(BLUR).map(|(offset, weight)| weight * plane.at(x, y + offset)).sum())
}

fn luminance([r, g, b]: &[Vec<f32>; 3]) -> Vec<f32> {
    r.iter().zip(g).zip(b).map(|((r, g), b)| 0.299 * r + 0.587 * g + 0.114 * b).collect()
}

fn sobel_x(plane: Plane) -> Vec<f32> {
    let smooth = |x, y| plane.at(x, y - 1) + 2.0 * plane.at(x, y) + plane.at(x, y + 1);
    plane.map(|x, y| smooth(x + 1, y) - smooth(x - 1, y))
}

fn sobel_y(plane: Plane) -> Vec<f32> {
    let smooth = |x, y| plane.at(x - 1, y) + 2.0 * plane.at(x, y) + plane.at(x + 1, y);
    plane.map(|x, y| smooth(x, y + 1) - smooth(x, y - 1))
}

fn magnitude(gradient_x: &[f32], gradient_y: &[f32]) -> Vec<f32> {
    gradient_x.iter().zip(gradient_y).map(|(x, y)| (x * x + y * y).sqrt()).collect()
}

fn bin(magnitude: f32) -> usize {
    (magnitude as usize / PER_BIN).min(BINS - 1)
}

fn histogram(magnitude: &[f32]) -> Vec<u32> {
    let mut histogram = vec![0; BINS];
    for &magnitude in magnitude {
        if let Some(count) = histogram.get_mut(bin(magnitude)) {
            *count += 1;
        }
    }
    histogram
}

/// The bin after which to cut, so that the two classes lie furthest apart: N. Otsu, "A Threshold Selection Method from
/// Gray-Level Histograms", IEEE Transactions on Systems, Man, and Cybernetics 9 (1), 1979, pages 62 to 66.
///
/// The first of equally good cuts wins. If all counts are in one bin there is nothing to cut, and the last bin is the
/// answer: a frame without contrast has no edges.
fn otsu(histogram: &[u32]) -> u32 {
    let mut threshold = BINS as u32 - 1;
    let mut best = 0.0;
    for cut in 0..BINS as u32 {
        let (below, above) = (class(histogram, |bin| bin <= cut), class(histogram, |bin| bin > cut));
        let apart = between_class_variance(below, above);
        if apart > best {
            (best, threshold) = (apart, cut);
        }
    }
    threshold
}

/// The size of a class of bins, and the sum of its members' bins.
fn class(histogram: &[u32], is_member: impl Fn(u32) -> bool) -> (u64, u64) {
    let members = || (0..).zip(histogram).filter(|&(bin, _)| is_member(bin));
    let size = members().map(|(_, &count)| u64::from(count)).sum();
    let sum = members().map(|(bin, &count)| u64::from(bin) * u64::from(count)).sum();
    (size, sum)
}

/// The paper's between-class variance, times the square of the number of pixels, which is the same for every cut.
fn between_class_variance(below: (u64, u64), above: (u64, u64)) -> f32 {
    if below.0 == 0 || above.0 == 0 {
        return 0.0;
    }
    let [below_size, below_sum, above_size, above_sum] =
        [below.0, below.1, above.0, above.1].map(|exact| exact as f32);
    let distance = above_sum / above_size - below_sum / below_size;
    (below_size * above_size) * (distance * distance)
}

fn edges(magnitude: &[f32], threshold: u32) -> Vec<u8> {
    magnitude.iter().map(|&magnitude| if bin(magnitude) as u32 > threshold { 255 } else { 0 }).collect()
}
