// The stages in WGSL: for each pixel what `kernels.rs` does, in the same order and rounded as there (`rounding.wgsl`), so that
// the pictures are the same to the last bit.
//
// Every index is compared with the lengths that the library supplies; where a plane is too short for its rows, nothing is
// written.

const BINS = 256u;
const LAST_BIN = 255u;

// Invocations that count.
const WIDE = 256u;

// The planes of all stages, by their places in the signatures.
@group(0) @binding(0) var<storage, read> plane_0: array<f32>;
@group(0) @binding(1) var<storage, read> plane_1: array<f32>;
@group(0) @binding(2) var<storage, read> plane_2: array<f32>;
@group(0) @binding(1) var<storage, read_write> result_1: array<f32>;
@group(0) @binding(2) var<storage, read_write> result_2: array<f32>;
@group(0) @binding(3) var<storage, read_write> result_3: array<f32>;

struct Blur { n_src: u32, n_dst: u32, width: u32 }
@group(0) @binding(2) var<uniform> blur: Blur;

struct Stencil { n_src: u32, n_dst: u32, width: u32, height: u32 }
@group(0) @binding(2) var<uniform> stencil: Stencil;

// The pixel of an invocation, and the size of its plane.
struct Pixel { x: u32, y: u32, width: u32, height: u32, exists: bool }

// A plane of whole rows that has `length` elements, and no fewer.
fn pixel(at: vec3<u32>, width: u32, length: u32) -> Pixel {
    zero = length >> 31u;
    let height = length / max(width, 1u);
    return Pixel(at.x, at.y, width, height, at.x < width && at.y < height && at.z == 0u);
}

fn place(p: Pixel) -> u32 {
    return p.y * p.width + p.x;
}

fn near(at: u32, offset: i32, size: u32) -> u32 {
    return u32(clamp(i32(at) + offset, 0, i32(size) - 1));
}

// What is so many pixels further on, in a plane of the pixel's size.
fn at(p: Pixel, right: i32, down: i32) -> f32 {
    return plane_0[near(p.y, down, p.height) * p.width + near(p.x, right, p.width)];
}

fn blend(a: f32, b: f32, c: f32, d: f32, e: f32) -> f32 {
    return mul(0.0625, a) + mul(0.25, b) + mul(0.375, c) + mul(0.25, d) + mul(0.0625, e);
}

fn smoothed(a: f32, b: f32, c: f32) -> f32 {
    return a + mul(2.0, b) + c;
}

fn bin(magnitude: f32) -> u32 {
    return min(u32(magnitude) >> 1u, LAST_BIN);
}

@compute @workgroup_size(32, 8)
fn blur_rows(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = pixel(id, blur.width, blur.n_dst);
    if (!p.exists || blur.n_src < blur.n_dst) {
        return;
    }
    result_1[place(p)] = blend(at(p, -2, 0), at(p, -1, 0), at(p, 0, 0), at(p, 1, 0), at(p, 2, 0));
}

// The pixel of a stencil's invocation.
fn stenciled(id: vec3<u32>) -> Pixel {
    var p = pixel(id, stencil.width, stencil.n_dst);
    p.exists = p.exists && p.height == stencil.height && stencil.n_src >= stencil.n_dst;
    return p;
}

@compute @workgroup_size(32, 8)
fn blur_columns(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = stenciled(id);
    if (!p.exists) {
        return;
    }
    result_1[place(p)] = blend(at(p, 0, -2), at(p, 0, -1), at(p, 0, 0), at(p, 0, 1), at(p, 0, 2));
}

@compute @workgroup_size(32, 8)
fn sobel_x(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = stenciled(id);
    if (!p.exists) {
        return;
    }
    let right = smoothed(at(p, 1, -1), at(p, 1, 0), at(p, 1, 1));
    let left = smoothed(at(p, -1, -1), at(p, -1, 0), at(p, -1, 1));
    result_1[place(p)] = right - left;
}

@compute @workgroup_size(32, 8)
fn sobel_y(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = stenciled(id);
    if (!p.exists) {
        return;
    }
    let lower = smoothed(at(p, -1, 1), at(p, 0, 1), at(p, 1, 1));
    let upper = smoothed(at(p, -1, -1), at(p, 0, -1), at(p, 1, -1));
    result_1[place(p)] = lower - upper;
}

struct Luminance { n_r: u32, n_g: u32, n_b: u32, n_dst: u32, width: u32 }
@group(0) @binding(4) var<uniform> colours: Luminance;

@compute @workgroup_size(32, 8)
fn luminance(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = pixel(id, colours.width, colours.n_dst);
    if (!p.exists || min(colours.n_r, min(colours.n_g, colours.n_b)) < colours.n_dst) {
        return;
    }
    let i = place(p);
    result_3[i] = mul(0.299f, plane_0[i]) + mul(0.587f, plane_1[i]) + mul(0.114f, plane_2[i]);
}

struct Magnitude { n_x: u32, n_y: u32, n_dst: u32, width: u32 }
@group(0) @binding(3) var<uniform> gradients: Magnitude;

@compute @workgroup_size(32, 8)
fn magnitude(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = pixel(id, gradients.width, gradients.n_dst);
    if (!p.exists || min(gradients.n_x, gradients.n_y) < gradients.n_dst) {
        return;
    }
    let i = place(p);
    result_2[i] = root(mul(plane_0[i], plane_0[i]) + mul(plane_1[i], plane_1[i]));
}

@group(0) @binding(1) var<storage, read_write> counts: array<u32>;

struct Histogram { n_magnitude: u32, n_counts: u32 }
@group(0) @binding(2) var<uniform> histogram_of: Histogram;

var<workgroup> shared_counts: array<atomic<u32>, BINS>;

// One workgroup, so that nothing needs to be set to zero first but what the workgroup has to itself, which is.
@compute @workgroup_size(WIDE)
fn histogram(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if (any(group != vec3<u32>(0u))) {
        return;
    }
    for (var i = thread; i < histogram_of.n_magnitude; i += WIDE) {
        atomicAdd(&shared_counts[bin(plane_0[i])], 1u);
    }
    workgroupBarrier();
    for (var i = thread; i < min(BINS, histogram_of.n_counts); i += WIDE) {
        counts[i] = atomicLoad(&shared_counts[i]);
    }
}

// A whole number of 64 bits.
struct Wide { low: u32, high: u32 }

fn plus(a: Wide, low: u32, high: u32) -> Wide {
    let sum = a.low + low;
    return Wide(sum, a.high + high + u32(sum < low));
}

// The nearest number: of what is cut off, all that matters is whether there was anything.
fn rounded(a: Wide) -> f32 {
    if (a.high == 0u) {
        return f32(a.low);
    }
    let kept = countLeadingZeros(a.high);
    let whole = (a.high << kept) | select(a.low >> (32u - kept), 0u, kept == 0u);
    let power = bitcast<f32>((159u - kept) << 23u);
    return f32(whole | u32((a.low << kept) != 0u)) * power;
}

@group(0) @binding(0) var<storage, read> counted: array<u32>;
@group(0) @binding(1) var<storage, read_write> threshold_1: array<u32>;

struct Threshold { n_counts: u32, n_threshold: u32 }
@group(0) @binding(2) var<uniform> threshold_of: Threshold;

var<workgroup> variances: array<f32, BINS>;

// One workgroup with an invocation for each cut; the first of the widest wins.
@compute @workgroup_size(BINS)
fn threshold(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) cut: u32) {
    if (any(group != vec3<u32>(0u)) || threshold_of.n_counts < BINS) {
        return;
    }
    zero = threshold_of.n_counts >> 31u;
    var below: Wide;
    var below_sum: Wide;
    var above: Wide;
    var above_sum: Wide;
    for (var i = 0u; i < BINS; i++) {
        let count = counted[i];
        // `i * count`, of up to 40 bits, in halves.
        let upper = i * (count >> 16u);
        if (i <= cut) {
            below = plus(below, count, 0u);
            below_sum = plus(plus(below_sum, i * (count & 0xffffu), 0u), upper << 16u, upper >> 16u);
        } else {
            above = plus(above, count, 0u);
            above_sum = plus(plus(above_sum, i * (count & 0xffffu), 0u), upper << 16u, upper >> 16u);
        }
    }
    var variance = 0.0;
    let n_below = rounded(below);
    let n_above = rounded(above);
    if (n_below > 0.0 && n_above > 0.0) {
        let gap = over(rounded(above_sum), n_above) - over(rounded(below_sum), n_below);
        variance = mul(mul(n_below, n_above), mul(gap, gap));
    }
    variances[cut] = variance;
    workgroupBarrier();
    if (cut != 0u) {
        return;
    }
    var widest = 0.0;
    var best = LAST_BIN;
    for (var i = 0u; i < BINS; i++) {
        if (variances[i] > widest) {
            widest = variances[i];
            best = i;
        }
    }
    for (var i = 0u; i < threshold_of.n_threshold; i++) {
        threshold_1[i] = best;
    }
}

@group(0) @binding(1) var<storage, read> threshold_in: array<u32>;
@group(0) @binding(2) var<storage, read_write> edges_2: array<u32>;

struct Edges { n_magnitude: u32, n_threshold: u32, n_dst: u32, width: u32 }
@group(0) @binding(3) var<uniform> edges_of: Edges;

// A word holds four pixels, which one invocation writes: the one whose pixel has the word's number.
@compute @workgroup_size(32, 8)
fn edges(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = pixel(id, edges_of.width, edges_of.n_dst);
    if (!p.exists || edges_of.n_magnitude < edges_of.n_dst || edges_of.n_threshold == 0u) {
        return;
    }
    let first = 4u * place(p);
    let end = min(first + 4u, p.width * p.height);
    if (first >= end) {
        return;
    }
    var word = 0u;
    for (var i = 0u; i < end - first; i++) {
        word |= select(0u, 255u, bin(plane_0[first + i]) > threshold_in[0]) << (8u * i);
    }
    edges_2[place(p)] = word;
}
