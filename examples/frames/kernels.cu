// The stages for CUDA: for each pixel what `kernels.rs` does, in the same order and rounded as there, so that the pictures
// are the same to the last bit. Sums, products, quotients and roots are written as intrinsics, which no compiler contracts;
// counts are whole numbers, which come out the same in every order.
//
// Every index is compared with the lengths that the library supplies, so that no grid and no argument makes a kernel reach
// beyond its buffers; where a plane is too short for its rows, nothing is written.

typedef unsigned long long u64;

#define BINS 256
#define LAST_BIN 255

__device__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ float mul(float a, float b) { return __fmul_rn(a, b); }

// The pixel of this thread, and its neighbours within the plane.
struct Pixel {
    u64 x, y, width, height;

    // Whether there is one, in a plane of whole rows that is as long as this and no shorter.
    __device__ bool in(u64 width, u64 length) {
        this->width = width;
        x = blockIdx.x * (u64)blockDim.x + threadIdx.x;
        y = blockIdx.y * (u64)blockDim.y + threadIdx.y;
        if (!width || blockIdx.z || threadIdx.z) return false;
        height = length / width;
        return x < width && y < height;
    }

    __device__ u64 place() { return y * width + x; }
    __device__ static u64 near(u64 at, int offset, u64 size) {
        if (offset < 0) return at < (u64)-offset ? 0 : at + offset;
        return at + offset < size ? at + offset : size - 1;
    }
    __device__ float at(const float* plane, int right, int down) {
        return plane[near(y, down, height) * width + near(x, right, width)];
    }
};

__device__ float blend(float a, float b, float c, float d, float e) {
    float outer = add(add(mul(0.0625f, a), mul(0.25f, b)), mul(0.375f, c));
    return add(add(outer, mul(0.25f, d)), mul(0.0625f, e));
}

__device__ float smooth(float a, float b, float c) { return add(add(a, mul(2.0f, b)), c); }

__device__ unsigned bin(float magnitude) {
    unsigned bin = __float2uint_rz(magnitude) >> 1;
    return bin < LAST_BIN ? bin : LAST_BIN;
}

extern "C" __global__ void blur_rows(const float* src, u64 n_src, float* dst, u64 n_dst, unsigned width) {
    Pixel p;
    if (!p.in(width, n_dst) || n_src < n_dst) return;
    dst[p.place()] = blend(p.at(src, -2, 0), p.at(src, -1, 0), p.at(src, 0, 0), p.at(src, 1, 0), p.at(src, 2, 0));
}

extern "C" __global__ void blur_columns(const float* src, u64 n_src, float* dst, u64 n_dst,
                                        unsigned width, unsigned height) {
    Pixel p;
    if (!p.in(width, n_dst) || p.height != height || n_src < n_dst) return;
    dst[p.place()] = blend(p.at(src, 0, -2), p.at(src, 0, -1), p.at(src, 0, 0), p.at(src, 0, 1), p.at(src, 0, 2));
}

extern "C" __global__ void luminance(const float* r, u64 n_r, const float* g, u64 n_g, const float* b, u64 n_b,
                                     float* dst, u64 n_dst, unsigned width) {
    Pixel p;
    if (!p.in(width, n_dst) || n_r < n_dst || n_g < n_dst || n_b < n_dst) return;
    u64 i = p.place();
    dst[i] = add(add(mul(0.299f, r[i]), mul(0.587f, g[i])), mul(0.114f, b[i]));
}

extern "C" __global__ void sobel_x(const float* src, u64 n_src, float* dst, u64 n_dst, unsigned width, unsigned height) {
    Pixel p;
    if (!p.in(width, n_dst) || p.height != height || n_src < n_dst) return;
    float right = smooth(p.at(src, 1, -1), p.at(src, 1, 0), p.at(src, 1, 1));
    float left = smooth(p.at(src, -1, -1), p.at(src, -1, 0), p.at(src, -1, 1));
    dst[p.place()] = __fsub_rn(right, left);
}

extern "C" __global__ void sobel_y(const float* src, u64 n_src, float* dst, u64 n_dst, unsigned width, unsigned height) {
    Pixel p;
    if (!p.in(width, n_dst) || p.height != height || n_src < n_dst) return;
    float lower = smooth(p.at(src, -1, 1), p.at(src, 0, 1), p.at(src, 1, 1));
    float upper = smooth(p.at(src, -1, -1), p.at(src, 0, -1), p.at(src, 1, -1));
    dst[p.place()] = __fsub_rn(lower, upper);
}

extern "C" __global__ void magnitude(const float* gradient_x, u64 n_x, const float* gradient_y, u64 n_y,
                                     float* dst, u64 n_dst, unsigned width) {
    Pixel p;
    if (!p.in(width, n_dst) || n_x < n_dst || n_y < n_dst) return;
    u64 i = p.place();
    float across = mul(gradient_x[i], gradient_x[i]), down = mul(gradient_y[i], gradient_y[i]);
    dst[i] = __fsqrt_rn(add(across, down));
}

// One block, so that nothing needs to be set to zero first but what the block has to itself.
extern "C" __global__ void histogram(const float* magnitude, u64 n_magnitude, unsigned* counts, u64 n_counts) {
    __shared__ unsigned shared[BINS];
    if (blockIdx.x | blockIdx.y | blockIdx.z) return;
    for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x) shared[i] = 0;
    __syncthreads();
    for (u64 i = threadIdx.x; i < n_magnitude; i += blockDim.x) atomicAdd(&shared[bin(magnitude[i])], 1u);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < BINS && i < n_counts; i += blockDim.x) counts[i] = shared[i];
}

// One block with a thread for each cut; the first of the widest wins.
extern "C" __global__ void threshold(const unsigned* counts, u64 n_counts, unsigned* threshold, u64 n_threshold) {
    __shared__ float variances[BINS];
    __shared__ unsigned shared[BINS];
    if (blockIdx.x | blockIdx.y | blockIdx.z || n_counts < BINS) return;
    unsigned cut = threadIdx.x;
    shared[cut] = counts[cut];
    __syncthreads();
    u64 below = 0, below_sum = 0, above = 0, above_sum = 0;
    for (unsigned i = 0; i < BINS; i++) {
        u64 count = shared[i], sum = i * count;
        if (i <= cut) below += count, below_sum += sum;
        else above += count, above_sum += sum;
    }
    float variance = 0.0f;
    if (below && above) {
        float gap = __fsub_rn(__fdiv_rn(above_sum, above), __fdiv_rn(below_sum, below));
        variance = mul(mul(below, above), mul(gap, gap));
    }
    variances[cut] = variance;
    __syncthreads();
    if (cut) return;
    float widest = 0.0f;
    unsigned best = LAST_BIN;
    for (unsigned i = 0; i < BINS; i++) {
        if (variances[i] > widest) widest = variances[i], best = i;
    }
    for (u64 i = 0; i < n_threshold; i++) threshold[i] = best;
}

extern "C" __global__ void edges(const float* magnitude, u64 n_magnitude, const unsigned* threshold, u64 n_threshold,
                                 unsigned char* dst, u64 n_dst, unsigned width) {
    Pixel p;
    if (!p.in(width, n_dst) || n_magnitude < n_dst || !n_threshold) return;
    dst[p.place()] = bin(magnitude[p.place()]) > threshold[0] ? 255 : 0;
}
