// The products of few rows: with the norm before them divided out after, with the gated activation, with the addition to
// the residual stream.
#include "epilogues.cuh"
#include "operand.cuh"

#if MATVEC_BULK
#include "split_depth.cuh"
template <int K, int PARTS, int SPLIT>
using Weights = BulkStream<K, PARTS, SPLIT>;
constexpr int BLOCK = THREADS + WARP;
#else
template <int K, int PARTS, int SPLIT>
using Weights = Stream<K, PARTS, SPLIT>;
constexpr int BLOCK = THREADS;
#endif

// A product of the feed-forward's width and for the residual stream, of which two blocks of a cluster may share K.
#if FFN_SPLIT > 1
#define FFN_KERNEL extern "C" __global__ void __cluster_dims__(FFN_SPLIT, 1, 1) __launch_bounds__(BLOCK, 1)
#else
#define FFN_KERNEL KERNEL(BLOCK, 1)
#endif

template <int K, int PARTS, int SPLIT = 1, class Epilogue, class X>
__device__ static void multiply(const Epilogue& epilogue, const X* x, const bf16* w, int rows, int n, int k) {
    expect(k, K);
    expect(gridDim.x, MATVEC_BLOCKS);
    using Stream = Weights<K, PARTS, SPLIT>;
    RowSlice slice(rows);
    auto& shared = Stream::Memory::get();
    Stream stream(shared, w, n);
    if (stream.produce()) return;
    wait_for_previous_kernels();
    start_next_kernel();
    Operand<Stream, X> operand(shared, slice, x);
    if constexpr (SPLIT > 1) run_split(stream, operand, slice, epilogue);
    else run_batches(stream, operand, slice, epilogue);
}

// What this is compiled for: a step, a round of speculation, or the products of a draft whose width differs.
#define STEP 0
#define ROUND 1
#define DRAFT 2

// residual += x · wᵀ, and what the next norm makes of it, of the feed-forward's width
FFN_KERNEL
down_matmul_add(bf16* weighted, float* squares, float* residual, const bf16* x, const bf16* w, const bf16* weight,
                int rows, int n, int k) {
    expect(n, HIDDEN);
    multiply<FFN, 1, FFN_SPLIT>(Residual{weighted, squares, residual, weight}, x, w, rows, n, k);
}

#if MATVEC_FOR != DRAFT
// The same of attention's width
KERNEL(BLOCK, 1)
output_matmul_add(bf16* weighted, float* squares, float* residual, const bf16* x, const bf16* w, const bf16* weight,
                  int rows, int n, int k) {
    expect(n, HIDDEN);
    multiply<Q_SIZE, 1>(Residual{weighted, squares, residual, weight}, x, w, rows, n, k);
}

// c = weighted · wᵀ / rms: the product of normed rows, which come as the residual stream times the norm's weight.
KERNEL(BLOCK, 1)
rms_matmul(bf16* c, const bf16* weighted, const float* squares, const bf16* w, int rows, int n, int k, float eps) {
    multiply<HIDDEN, 1>(Normed<bf16>{c, n, {squares, eps}}, weighted, w, rows, n, k);
}

KERNEL(BLOCK, 1)
rms_matmul_f32(float* c, const bf16* weighted, const float* squares, const bf16* w, int rows, int n, int k, float eps) {
    multiply<HIDDEN, 1>(Normed<float>{c, n, {squares, eps}}, weighted, w, rows, n, k);
}

// y = silu(gate) · up of such a product, whose first half is gate, its second up
KERNEL(BLOCK, 1)
rms_gate_up(bf16* y, const bf16* weighted, const float* squares, const bf16* w, int rows, int n, int k, float eps) {
    multiply<HIDDEN, 2>(Gated{y, n, {squares, eps}}, weighted, w, rows, n, k);
}

// c = x · wᵀ of the residual's width, for norms and additions that are not fused with the product
KERNEL(BLOCK, 1)
hidden_matmul(bf16* c, const bf16* x, const bf16* w, int rows, int n, int k) {
    multiply<HIDDEN, 1>(Stored<bf16>{c, n}, x, w, rows, n, k);
}
#endif

#if MATVEC_FOR == STEP
KERNEL(BLOCK, 1)
hidden_matmul_f32(float* c, const bf16* x, const bf16* w, int rows, int n, int k) {
    multiply<HIDDEN, 1>(Stored<float>{c, n}, x, w, rows, n, k);
}

// The same of attention's width and of the feed-forward's
KERNEL(BLOCK, 1)
output_matmul(bf16* c, const bf16* x, const bf16* w, int rows, int n, int k) {
    multiply<Q_SIZE, 1>(Stored<bf16>{c, n}, x, w, rows, n, k);
}

KERNEL(BLOCK, 1)
down_matmul(bf16* c, const bf16* x, const bf16* w, int rows, int n, int k) {
    multiply<FFN, 1>(Stored<bf16>{c, n}, x, w, rows, n, k);
}
#endif

#if MATVEC_FOR == ROUND
// c = x · wᵀ, or c += x · wᵀ, of the residual stream itself, rounded
KERNEL(BLOCK, 1)
residual_matmul_f32(float* c, const float* x, const bf16* w, int rows, int n, int k) {
    multiply<HIDDEN, 1>(Stored<float>{c, n}, x, w, rows, n, k);
}

KERNEL(BLOCK, 1)
residual_matmul_acc_f32(float* c, const float* x, const bf16* w, int rows, int n, int k) {
    multiply<HIDDEN, 1>(Added{c, n}, x, w, rows, n, k);
}
#endif
