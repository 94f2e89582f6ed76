// The kernels in WGSL: operation for operation what `kernels.rs` and `arithmetic.rs` do on the host, rounded as there
// (`rounding.wgsl`).
//
// Every index is compared with the lengths that the library supplies, and workgroups that a kernel has no use for do nothing:
// no two invocations write one element. What depends on a sequence's place decides over no barrier, since no compiler could
// tell that a workgroup agrees about it.

const LANES = 32u;
const PARTS = 8u;
const EPSILON = 1e-5f;
const LOWEST = -3.40282347e38f;

struct Place { position: u32, prompt: u32 }

// The arguments of all kernels, by their places in the signatures.
@group(0) @binding(0) var<storage, read> in_0: array<f32>;
@group(0) @binding(1) var<storage, read> in_1: array<f32>;
@group(0) @binding(2) var<storage, read> in_2: array<f32>;
@group(0) @binding(3) var<storage, read> in_3: array<f32>;
@group(0) @binding(1) var<storage, read_write> out_1: array<f32>;
@group(0) @binding(2) var<storage, read_write> out_2: array<f32>;
@group(0) @binding(3) var<storage, read_write> out_3: array<f32>;
@group(0) @binding(4) var<storage, read_write> out_4: array<f32>;
@group(0) @binding(0) var<storage, read> tokens_0: array<u32>;
@group(0) @binding(1) var<storage, read_write> tokens_1: array<u32>;
@group(0) @binding(0) var<storage, read> place_0: array<Place>;
@group(0) @binding(1) var<storage, read> place_1: array<Place>;
@group(0) @binding(2) var<storage, read> place_2: array<Place>;
@group(0) @binding(2) var<storage, read_write> moved_2: array<Place>;

fn exponential(y: f32) -> f32 {
    if (y < -87.0) {
        return 0.0;
    }
    let x = min(y, 88.0);
    let n = floor(mul(x, 1.44269504f) + 0.5);
    let r = x - mul(n, 355.0 / 512.0) - mul(n, -2.1219444e-4f);
    var p = 1.0f / 5040.0f;
    p = mul(p, r) + 1.0f / 720.0f;
    p = mul(p, r) + 1.0f / 120.0f;
    p = mul(p, r) + 1.0f / 24.0f;
    p = mul(p, r) + 1.0f / 6.0f;
    p = mul(p, r) + 0.5;
    p = mul(p, r) + 1.0;
    p = mul(p, r) + 1.0;
    return mul(p, bitcast<f32>(u32(i32(n) + 127) << 23u));
}

// How much of a cache of `context` positions is in use, once the one at `position` is in.
fn used_of(context: u32, position: u32) -> u32 {
    return min(context, position + 1u);
}

var<workgroup> lanes: array<f32, LANES>;

// The sum of one value a lane, added in halves; for every lane.
fn sum_of_lanes(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    lanes[lane] = value;
    workgroupBarrier();
    for (var width = LANES / 2u; width > 0u; width /= 2u) {
        if (lane < width) {
            lanes[lane] += lanes[lane + width];
        }
        workgroupBarrier();
    }
    return lanes[0];
}

fn largest_of_lanes(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    lanes[lane] = value;
    workgroupBarrier();
    for (var width = LANES / 2u; width > 0u; width /= 2u) {
        if (lane < width) {
            lanes[lane] = max(lanes[lane], lanes[lane + width]);
        }
        workgroupBarrier();
    }
    return lanes[0];
}

var<workgroup> parts: array<array<f32, LANES>, PARTS>;

// The sum of `in_0[first + i] * in_1[i * stride + column]` over `n` elements, in a part for each row of the workgroup, added
// up for the first row. Called by all of a workgroup; those without a column have an `n` of 0.
fn product(thread: vec3<u32>, first: u32, n: u32, stride: u32, column: u32) -> f32 {
    let part = (n + PARTS - 1u) / PARTS;
    var sum = 0.0;
    for (var i = thread.y * part; i < min(n, (thread.y + 1u) * part); i++) {
        sum += mul(in_0[first + i], in_1[i * stride + column]);
    }
    parts[thread.y][thread.x] = sum;
    workgroupBarrier();
    for (var p = 1u; p < PARTS; p++) {
        sum += parts[p][thread.x];
    }
    return sum;
}

struct Embed { n_tokens: u32, n_place: u32, n_embedding: u32, n_positions: u32, n: u32 }
@group(0) @binding(5) var<uniform> to_embed: Embed;

@compute @workgroup_size(256)
fn embed(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    let n = to_embed.n;
    if (any(id.yz != vec2<u32>(0u)) || i >= n || to_embed.n_place == 0u) {
        return;
    }
    let position = place_1[0].position;
    if (position >= to_embed.n_tokens) {
        return;
    }
    let of_token = tokens_0[position] * n + i;
    let of_position = position * n + i;
    if (of_token < to_embed.n_embedding && of_position < to_embed.n_positions) {
        out_4[i] = in_2[of_token] + in_3[of_position];
    }
}

struct Normalize { n_x: u32, n_gain: u32, n: u32 }
@group(0) @binding(3) var<uniform> to_normalize: Normalize;

@compute @workgroup_size(LANES)
fn normalize(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let n = to_normalize.n;
    if (any(group != vec3<u32>(0u)) || min(to_normalize.n_x, to_normalize.n_gain) < n) {
        return;
    }
    zero = n >> 31u;
    var squares = 0.0;
    for (var i = lane; i < n; i += LANES) {
        squares += mul(in_0[i], in_0[i]);
    }
    let mean = over(sum_of_lanes(lane, squares), f32(n));
    let scale = over(1.0, root(mean + EPSILON));
    for (var i = lane; i < n; i += LANES) {
        out_2[i] = mul(mul(in_0[i], scale), in_1[i]);
    }
}

struct Multiply { n_x: u32, n_matrix: u32, n: u32 }
@group(0) @binding(3) var<uniform> to_multiply: Multiply;

// Whether there is a product to be added up.
fn multiplies(group: vec3<u32>) -> bool {
    let n = to_multiply.n;
    return group.y == 0u && group.z == 0u && n > 0u && to_multiply.n_matrix / max(n, 1u) >= to_multiply.n_x;
}

fn multiplied(thread: vec3<u32>, column: u32) -> f32 {
    let n = to_multiply.n;
    zero = n >> 31u;
    return product(thread, 0u, select(0u, to_multiply.n_x, column < n), n, column);
}

// A workgroup for every 32 outputs.
@compute @workgroup_size(LANES, PARTS)
fn multiply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
    if (!multiplies(group)) {
        return;
    }
    let column = group.x * LANES + thread.x;
    let sum = multiplied(thread, column);
    if (thread.y == 0u && column < to_multiply.n) {
        out_2[column] = sum;
    }
}

// As `multiply`, on top of what is there.
@compute @workgroup_size(LANES, PARTS)
fn accumulate(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
    if (!multiplies(group)) {
        return;
    }
    let column = group.x * LANES + thread.x;
    let sum = multiplied(thread, column);
    if (thread.y == 0u && column < to_multiply.n) {
        out_2[column] += sum;
    }
}

struct Remember { n_key: u32, n_value: u32, n_place: u32, n_keys: u32, n_values: u32 }
@group(0) @binding(5) var<uniform> to_remember: Remember;

// Keys lie by dimension, values by position: so the invocations of `score` and of `mix` read side by side.
@compute @workgroup_size(256)
fn remember(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    let s = to_remember;
    if (any(id.yz != vec2<u32>(0u)) || i >= s.n_key || i >= s.n_value || s.n_place == 0u) {
        return;
    }
    let context = s.n_keys / s.n_key;
    let position = place_2[0].position;
    if (position >= context || position * s.n_value + i >= s.n_values) {
        return;
    }
    out_3[i * context + position] = in_0[i];
    out_4[position * s.n_value + i] = in_1[i];
}

struct Score { n_query: u32, n_keys: u32, n_place: u32, n_scores: u32, heads: u32 }
@group(0) @binding(4) var<uniform> to_score: Score;

// An invocation for each position of each head, heads along y.
@compute @workgroup_size(256)
fn score(@builtin(global_invocation_id) id: vec3<u32>) {
    let s = to_score;
    let position = id.x;
    let head = id.y;
    if (head >= s.heads || id.z != 0u || s.n_place == 0u) {
        return;
    }
    zero = s.n_scores >> 31u;
    let context = s.n_scores / s.heads;
    let size = s.n_query / s.heads;
    if (position >= context || s.n_keys / context < s.n_query) {
        return;
    }
    var sum = 0.0;
    if (position <= place_2[0].position) {
        for (var i = head * size; i < (head + 1u) * size; i++) {
            sum += mul(in_0[i], in_1[i * context + position]);
        }
        sum = over(sum, root(f32(size)));
    }
    out_3[head * context + position] = sum;
}

struct Soften { n_place: u32, n_scores: u32, heads: u32 }
@group(0) @binding(2) var<uniform> to_soften: Soften;

// A workgroup for each head.
@compute @workgroup_size(LANES)
fn soften(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let s = to_soften;
    if (group.x >= s.heads || group.y != 0u || group.z != 0u || s.n_place == 0u) {
        return;
    }
    zero = s.n_scores >> 31u;
    let context = s.n_scores / s.heads;
    let row = group.x * context;
    let used = used_of(context, place_0[0].position);
    var greatest = LOWEST;
    for (var t = lane; t < used; t += LANES) {
        greatest = max(greatest, out_1[row + t]);
    }
    greatest = largest_of_lanes(lane, greatest);
    var sum = 0.0;
    for (var t = lane; t < used; t += LANES) {
        let weight = exponential(out_1[row + t] - greatest);
        out_1[row + t] = weight;
        sum += weight;
    }
    sum = sum_of_lanes(lane, sum);
    for (var t = lane; t < used; t += LANES) {
        out_1[row + t] = over(out_1[row + t], sum);
    }
}

struct Mix { n_weights: u32, n_values: u32, n_place: u32, n: u32, heads: u32 }
@group(0) @binding(4) var<uniform> to_mix: Mix;

// A workgroup for every 32 outputs, which may belong to several heads.
@compute @workgroup_size(LANES, PARTS)
fn mix(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
    let s = to_mix;
    if (group.y != 0u || group.z != 0u || s.n_place == 0u || s.heads == 0u || s.n < s.heads || s.n % s.heads != 0u) {
        return;
    }
    zero = s.n >> 31u;
    let context = s.n_weights / s.heads;
    let used = min(used_of(context, place_2[0].position), s.n_values / s.n);
    let column = group.x * LANES + thread.x;
    let head = column / (s.n / s.heads);
    let sum = product(thread, head * context, select(0u, used, column < s.n), s.n, column);
    if (thread.y == 0u && column < s.n) {
        out_3[column] = sum;
    }
}

struct Swish { n_gate: u32, n: u32 }
@group(0) @binding(2) var<uniform> to_swish: Swish;

@compute @workgroup_size(256)
fn swish(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if (any(id.yz != vec2<u32>(0u)) || i >= to_swish.n || i >= to_swish.n_gate) {
        return;
    }
    zero = to_swish.n >> 31u;
    let open = over(in_0[i], 1.0 + exponential(-in_0[i]));
    out_1[i] = mul(open, out_1[i]);
}

struct Choose { n: u32, n_tokens: u32, n_place: u32 }
@group(0) @binding(3) var<uniform> to_choose: Choose;

var<workgroup> candidates: array<u32, LANES>;

// Of equal logits the first wins, whichever lane it is in.
@compute @workgroup_size(LANES)
fn choose(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if (any(group != vec3<u32>(0u)) || to_choose.n_place == 0u) {
        return;
    }
    var best = LOWEST;
    var token = 0u;
    for (var i = lane; i < to_choose.n; i += LANES) {
        if (in_0[i] > best) {
            best = in_0[i];
            token = i;
        }
    }
    lanes[lane] = best;
    candidates[lane] = token;
    workgroupBarrier();
    if (lane != 0u) {
        return;
    }
    for (var other = 1u; other < LANES; other++) {
        if (lanes[other] > best || (lanes[other] == best && candidates[other] < token)) {
            best = lanes[other];
            token = candidates[other];
        }
    }
    let next = moved_2[0].position + 1u;
    if (next >= to_choose.n_tokens) {
        return;
    }
    if (next >= moved_2[0].prompt) {
        tokens_1[next] = token;
    }
    moved_2[0].position = next;
}
