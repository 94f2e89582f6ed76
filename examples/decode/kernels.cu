// The kernels for CUDA: operation for operation what `kernels.rs` and `arithmetic.rs` do on the host.
//
// Sums and products are written as `add` and `mul`, which no compiler contracts to one rounding. Every index is compared
// with the lengths that the library supplies, and blocks that a kernel has no use for do nothing: no grid and no argument
// makes one reach beyond its buffers, or two threads write one element.

typedef unsigned long long u64;

struct Place { unsigned position, prompt; };

#define LANES 32
#define PARTS 8
#define EPSILON 1e-5f
#define LOWEST __int_as_float(0xff800000)

__device__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ float over(float a, float b) { return __fdiv_rn(a, b); }
__device__ u64 least(u64 a, u64 b) { return a < b ? a : b; }

// The number of this thread in a grid of one extent; beyond every length in blocks that such a grid does not have.
__device__ u64 thread() {
    return blockIdx.y | blockIdx.z ? ~0ull : blockIdx.x * (u64)blockDim.x + threadIdx.x;
}

__device__ float exponential(float x) {
    if (x < -87.0f) return 0.0f;
    x = fminf(x, 88.0f);
    float n = floorf(add(mul(x, 1.44269504f), 0.5f));
    float r = __fsub_rn(__fsub_rn(x, mul(n, 355.0f / 512.0f)), mul(n, -2.1219444e-4f));
    float p = 1.0f / 5040.0f;
    p = add(mul(p, r), 1.0f / 720.0f);
    p = add(mul(p, r), 1.0f / 120.0f);
    p = add(mul(p, r), 1.0f / 24.0f);
    p = add(mul(p, r), 1.0f / 6.0f);
    p = add(mul(p, r), 0.5f);
    p = add(mul(p, r), 1.0f);
    p = add(mul(p, r), 1.0f);
    return mul(p, __int_as_float(((int)n + 127) << 23));
}

// The sum of one value a lane, added in halves; for every lane of a whole warp.
__device__ float sum_of_lanes(float value) {
    for (int width = LANES / 2; width; width /= 2) value = add(value, __shfl_down_sync(~0u, value, width));
    return __shfl_sync(~0u, value, 0);
}

__device__ float largest_of_lanes(float value) {
    for (int width = LANES / 2; width; width /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, width));
    return value;
}

// The sum of `x[i] * matrix[i * stride + column]`, in a part for each row of the block, added up for the first row. Called
// by all threads of a block; those without a column have an `n` of 0.
__device__ float product(const float* x, u64 n, const float* matrix, u64 stride, u64 column) {
    __shared__ float parts[PARTS][LANES];
    u64 part = (n + PARTS - 1) / PARTS, end = least(n, (threadIdx.y + 1) * part);
    float sum = 0.0f;
    for (u64 i = threadIdx.y * part; i < end; i++) sum = add(sum, mul(x[i], matrix[i * stride + column]));
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int p = 1; p < PARTS; p++) sum = add(sum, parts[p][threadIdx.x]);
    return sum;
}

extern "C" __global__ void embed(const unsigned* tokens, u64 n_tokens, const Place* place, u64 n_place,
                                 const float* embedding, u64 n_embedding, const float* positions, u64 n_positions,
                                 float* x, u64 n) {
    u64 i = thread();
    if (i >= n || !n_place || place->position >= n_tokens) return;
    u64 of_token = tokens[place->position] * n + i, of_position = place->position * n + i;
    if (of_token < n_embedding && of_position < n_positions) x[i] = add(embedding[of_token], positions[of_position]);
}

// One warp.
extern "C" __global__ void normalize(const float* x, u64 n_x, const float* gain, u64 n_gain, float* y, u64 n) {
    if (blockIdx.x | blockIdx.y | blockIdx.z || n_x < n || n_gain < n) return;
    float squares = 0.0f;
    for (u64 i = threadIdx.x; i < n; i += LANES) squares = add(squares, mul(x[i], x[i]));
    float mean = over(sum_of_lanes(squares), (float)n);
    float scale = over(1.0f, __fsqrt_rn(add(mean, EPSILON)));
    for (u64 i = threadIdx.x; i < n; i += LANES) y[i] = mul(mul(x[i], scale), gain[i]);
}

// A block for every 32 outputs.
extern "C" __global__ void multiply(const float* x, u64 n_x, const float* matrix, u64 n_matrix, float* y, u64 n) {
    if (blockIdx.y | blockIdx.z || !n || n_matrix / n < n_x) return;
    u64 column = blockIdx.x * (u64)LANES + threadIdx.x;
    float sum = product(x, column < n ? n_x : 0, matrix, n, column);
    if (threadIdx.y == 0 && column < n) y[column] = sum;
}

// As `multiply`, on top of what is there.
extern "C" __global__ void accumulate(const float* x, u64 n_x, const float* matrix, u64 n_matrix, float* y, u64 n) {
    if (blockIdx.y | blockIdx.z || !n || n_matrix / n < n_x) return;
    u64 column = blockIdx.x * (u64)LANES + threadIdx.x;
    float sum = product(x, column < n ? n_x : 0, matrix, n, column);
    if (threadIdx.y == 0 && column < n) y[column] = add(y[column], sum);
}

// Keys lie by dimension, values by position: so the threads of `score` and of `mix` read side by side.
extern "C" __global__ void remember(const float* key, u64 n_key, const float* value, u64 n_value,
                                    const Place* place, u64 n_place,
                                    float* keys, u64 n_keys, float* values, u64 n_values) {
    u64 i = thread();
    if (i >= n_key || i >= n_value || !n_place) return;
    u64 context = n_keys / n_key, position = place->position;
    if (position >= context || position * n_value + i >= n_values) return;
    keys[i * context + position] = key[i];
    values[position * n_value + i] = value[i];
}

// A thread for each position of each head, heads along y.
extern "C" __global__ void score(const float* query, u64 n_query, const float* keys, u64 n_keys,
                                 const Place* place, u64 n_place, float* scores, u64 n_scores, unsigned heads) {
    u64 position = blockIdx.x * (u64)blockDim.x + threadIdx.x, head = blockIdx.y;
    if (head >= heads || blockIdx.z || !n_place) return;
    u64 context = n_scores / heads, size = n_query / heads;
    if (position >= context || n_keys / context < n_query) return;
    float sum = 0.0f;
    if (position <= place->position) {
        for (u64 i = head * size; i < (head + 1) * size; i++) {
            sum = add(sum, mul(query[i], keys[i * context + position]));
        }
        sum = over(sum, __fsqrt_rn((float)size));
    }
    scores[head * context + position] = sum;
}

// A warp for each head.
extern "C" __global__ void soften(const Place* place, u64 n_place, float* scores, u64 n_scores, unsigned heads) {
    if (blockIdx.x >= heads || blockIdx.y | blockIdx.z || !n_place) return;
    u64 context = n_scores / heads, used = least(context, place->position + 1ull);
    float* row = scores + blockIdx.x * context;
    float largest = LOWEST, sum = 0.0f;
    for (u64 t = threadIdx.x; t < used; t += LANES) largest = fmaxf(largest, row[t]);
    largest = largest_of_lanes(largest);
    for (u64 t = threadIdx.x; t < used; t += LANES) {
        row[t] = exponential(__fsub_rn(row[t], largest));
        sum = add(sum, row[t]);
    }
    sum = sum_of_lanes(sum);
    for (u64 t = threadIdx.x; t < used; t += LANES) row[t] = over(row[t], sum);
}

// A block for every 32 outputs, which may belong to several heads.
extern "C" __global__ void mix(const float* weights, u64 n_weights, const float* values, u64 n_values,
                               const Place* place, u64 n_place, float* y, u64 n, unsigned heads) {
    if (blockIdx.y | blockIdx.z || !n_place || !heads || !n || n % heads) return;
    u64 context = n_weights / heads, used = least(context, place->position + 1ull);
    if (n_values / n < used) return;
    u64 column = blockIdx.x * (u64)LANES + threadIdx.x, head = column / (n / heads);
    float sum = product(weights + head * context, column < n ? used : 0, values, n, column);
    if (threadIdx.y == 0 && column < n) y[column] = sum;
}

extern "C" __global__ void swish(const float* gate, u64 n_gate, float* up, u64 n) {
    u64 i = thread();
    if (i >= n || i >= n_gate) return;
    float open = over(gate[i], add(1.0f, exponential(-gate[i])));
    up[i] = mul(open, up[i]);
}

// One warp. Of equal logits the first wins, whichever lane it is in.
extern "C" __global__ void choose(const float* logits, u64 n, unsigned* tokens, u64 n_tokens,
                                  Place* place, u64 n_place) {
    if (blockIdx.x | blockIdx.y | blockIdx.z || !n_place) return;
    float best = LOWEST;
    unsigned token = 0;
    for (u64 i = threadIdx.x; i < n; i += LANES) {
        if (logits[i] > best) best = logits[i], token = i;
    }
    for (int width = LANES / 2; width; width /= 2) {
        float other = __shfl_down_sync(~0u, best, width);
        unsigned its = __shfl_down_sync(~0u, token, width);
        if (other > best || (other == best && its < token)) best = other, token = its;
    }
    if (threadIdx.x) return;
    u64 next = place->position + 1ull;
    if (next >= n_tokens) return;
    if (next >= place->prompt) tokens[next] = token;
    place->position = next;
}
