// Kernels over the rows of a chunk, a block per row: embedding and other tables, norms, rounding, the gated activation.
#include "kernel.cuh"

constexpr int ROW_THREADS = 256;
constexpr int ROW_WARPS = ROW_THREADS / WARP;
constexpr int VECTORS = HIDDEN / 4;
constexpr int MINE = ceil_div(VECTORS, ROW_THREADS);
static_assert(HIDDEN % 4 == 0 && FFN % 8 == 0, "rows of whole vectors");

__device__ static float4 widen(const Bf16x4& x) {
    float2 low = __bfloat1622float2(x.pair[0]), high = __bfloat1622float2(x.pair[1]);
    return {low.x, low.y, high.x, high.y};
}

__device__ static float block_sum(float value) {
    __shared__ float part[ROW_WARPS];
    value = warp_sum(value);
    if (lane_index() == 0) part[warp_index()] = value;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < ROW_WARPS; warp++) sum += part[warp];
    return sum;
}

// y = x / sqrt(mean(x^2) + eps) · weight, of this thread's vectors of a row
__device__ static void norm_row(bf16* y, const float4 (&x)[MINE], const bf16* weight, float eps) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < MINE; i++) sum += x[i].x * x[i].x + x[i].y * x[i].y + x[i].z * x[i].z + x[i].w * x[i].w;
    float scale = inverse_rms(block_sum(sum), HIDDEN, eps);
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        int at = i * ROW_THREADS + threadIdx.x;
        if (at >= VECTORS) continue;
        float4 gain = widen(reinterpret_cast<const Bf16x4*>(weight)[at]);
        Bf16x4 out;
        out.pair[0] = __floats2bfloat162_rn(x[i].x * scale * gain.x, x[i].y * scale * gain.y);
        out.pair[1] = __floats2bfloat162_rn(x[i].z * scale * gain.z, x[i].w * scale * gain.w);
        reinterpret_cast<Bf16x4*>(y)[at] = out;
    }
}

// x[t] = table[ids[t]]; row 0 for an id below 0, here and below
KERNEL(ROW_THREADS, 1)
embedding(float* x, const i64* ids, const bf16* table, int hidden) {
    expect(hidden, HIDDEN);
    start_next_kernel();
    wait_for_previous_kernels();
    const bf16* from = table + row_of(load_fresh<i64>(ids + blockIdx.x)) * HIDDEN;
    float* to = x + static_cast<i64>(blockIdx.x) * HIDDEN;
    for (int at = threadIdx.x; at < VECTORS; at += ROW_THREADS)
        reinterpret_cast<float4*>(to)[at] = widen(reinterpret_cast<const Bf16x4*>(from)[at]);
}

// x[t] = table[ids[t]]; weighted = x · weight, and the sum of x^2 as the first of the blocks' shares, for a product that
// divides the rms out after (matvec.cu).
KERNEL(ROW_THREADS, 1)
embedding_weighted(bf16* weighted, float* squares, float* x, const i64* ids, const bf16* table, const bf16* weight,
                   int hidden) {
    expect(hidden, HIDDEN);
    start_next_kernel();
    wait_for_previous_kernels();
    i64 row = static_cast<i64>(blockIdx.x) * HIDDEN;
    const bf16* from = table + row_of(load_fresh<i64>(ids + blockIdx.x)) * HIDDEN;
    float sum = 0.0f;
    for (int at = threadIdx.x; at < VECTORS; at += ROW_THREADS) {
        float4 v = widen(reinterpret_cast<const Bf16x4*>(from)[at]);
        float4 gain = widen(reinterpret_cast<const Bf16x4*>(weight)[at]);
        reinterpret_cast<float4*>(x + row)[at] = v;
        Bf16x4 out;
        out.pair[0] = __floats2bfloat162_rn(v.x * gain.x, v.y * gain.y);
        out.pair[1] = __floats2bfloat162_rn(v.z * gain.z, v.w * gain.w);
        reinterpret_cast<Bf16x4*>(weighted + row)[at] = out;
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    sum = block_sum(sum);
    float* shares = squares + static_cast<i64>(blockIdx.x) * MATVEC_BLOCKS;
    for (int at = threadIdx.x; at < MATVEC_BLOCKS; at += ROW_THREADS) shares[at] = at == 0 ? sum : 0.0f;
}

// x[t] = table[ids[t]] for a residual stream in bf16: a row is copied as it is.
KERNEL(ROW_THREADS, 1)
embedding_bf16(bf16* x, const i64* ids, const bf16* table, int hidden) {
    expect(hidden, HIDDEN);
    start_next_kernel();
    wait_for_previous_kernels();
    const bf16* from = table + row_of(load_fresh<i64>(ids + blockIdx.x)) * HIDDEN;
    bf16* to = x + static_cast<i64>(blockIdx.x) * HIDDEN;
    for (int at = threadIdx.x; at < VECTORS; at += ROW_THREADS)
        reinterpret_cast<Bf16x4*>(to)[at] = reinterpret_cast<const Bf16x4*>(from)[at];
}

// Rows of a table of any width.
KERNEL(ROW_THREADS, 1)
gather_bf16(bf16* y, const i64* ids, const bf16* table, int width, int stride) {
    start_next_kernel();
    wait_for_previous_kernels();
    const bf16* from = table + row_of(load_fresh<i64>(ids + static_cast<i64>(blockIdx.x) * stride)) * width;
    bf16* to = y + static_cast<i64>(blockIdx.x) * width;
    for (int at = threadIdx.x; at < width; at += ROW_THREADS) to[at] = from[at];
}

// y[s] = x[rows[s]] for a row of the call; zeros for a row below 0
KERNEL(ROW_THREADS, 1)
gather_rows(bf16* y, const bf16* x, const i64* rows, int width) {
    start_next_kernel();
    wait_for_previous_kernels();
    i64 row = load_fresh<i64>(rows + blockIdx.x);
    bf16* to = y + static_cast<i64>(blockIdx.x) * width;
    for (int at = threadIdx.x; at < width; at += ROW_THREADS)
        to[at] = row < 0 ? __float2bfloat16(0.0f) : load_fresh<bf16>(x + row * width + at);
}

// y = x, rounded
KERNEL(ROW_THREADS, 1)
to_bf16(bf16* y, const float* x, int hidden) {
    expect(hidden, HIDDEN);
    start_next_kernel();
    wait_for_previous_kernels();
    i64 row = static_cast<i64>(blockIdx.x) * HIDDEN;
    for (int at = threadIdx.x; at < VECTORS; at += ROW_THREADS) {
        float4 from = load_fresh<float4>(x + row + at * 4);
        Bf16x4 out;
        out.pair[0] = __floats2bfloat162_rn(from.x, from.y);
        out.pair[1] = __floats2bfloat162_rn(from.z, from.w);
        reinterpret_cast<Bf16x4*>(y + row)[at] = out;
    }
}

KERNEL(ROW_THREADS, 1)
rms_norm(bf16* y, const float* x, const bf16* weight, int hidden, float eps) {
    expect(hidden, HIDDEN);
    start_next_kernel();
    wait_for_previous_kernels();
    i64 row = static_cast<i64>(blockIdx.x) * HIDDEN;
    float4 v[MINE] = {};
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        int at = i * ROW_THREADS + threadIdx.x;
        if (at < VECTORS) v[i] = load_fresh<float4>(x + row + at * 4);
    }
    norm_row(y + row, v, weight, eps);
}

// x += delta; y = norm(x)
KERNEL(ROW_THREADS, 1)
add_rms_norm(bf16* y, float* x, const bf16* delta, const bf16* weight, int hidden, float eps) {
    expect(hidden, HIDDEN);
    start_next_kernel();
    wait_for_previous_kernels();
    i64 row = static_cast<i64>(blockIdx.x) * HIDDEN;
    float4 v[MINE] = {};
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        int at = i * ROW_THREADS + threadIdx.x;
        if (at >= VECTORS) continue;
        v[i] = load_fresh<float4>(x + row + at * 4);
        float4 d = widen(load_fresh<Bf16x4>(delta + row + at * 4));
        v[i] = {v[i].x + d.x, v[i].y + d.y, v[i].z + d.z, v[i].w + d.w};
        reinterpret_cast<float4*>(x + row)[at] = v[i];
    }
    norm_row(y + row, v, weight, eps);
}

// y [tokens, FFN] = silu(gate) · up of gate_up [tokens, 2 FFN]; eight elements per thread
KERNEL(ROW_THREADS, 1)
silu_mul(bf16* y, const bf16* gate_up, int ffn) {
    expect(ffn, FFN);
    start_next_kernel();
    wait_for_previous_kernels();
    int at = (blockIdx.y * ROW_THREADS + threadIdx.x) * 8;
    if (at >= FFN) return;
    const bf16* from = gate_up + static_cast<i64>(blockIdx.x) * 2 * FFN + at;
    Bf16x8 gate = load_fresh<Bf16x8>(from), up = load_fresh<Bf16x8>(from + FFN), out;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 g = __bfloat1622float2(gate.pair[i]), u = __bfloat1622float2(up.pair[i]);
        out.pair[i] = __floats2bfloat162_rn(silu(g.x) * u.x, silu(g.y) * u.y);
    }
    *reinterpret_cast<Bf16x8*>(y + static_cast<i64>(blockIdx.x) * FFN + at) = out;
}
