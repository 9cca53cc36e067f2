// The products of a step of one token a sequence: with the norm before them, and with the gated activation after.
#include "bulk_stream.cuh"
#include "matvec.cuh"
#include "residual.cuh"

#if MATVEC_BULK
template <int K, int PARTS>
using Weights = BulkStream<K, PARTS>;
constexpr int BLOCK = THREADS + WARP;
#else
template <int K, int PARTS>
using Weights = Stream<K, PARTS>;
constexpr int BLOCK = THREADS;
#endif

template <int PARTS, class Residual, class Store>
__device__ static void norm_matvec(const Residual& residual, const bf16* weight, const bf16* w, int rows, int n, int k,
                                   float eps, Store store) {
    expect(k, HIDDEN);
    Slice slice(rows);
    auto& shared = Shared<HIDDEN, PARTS>::get();
    Weights<HIDDEN, PARTS> stream(shared, w, n);
    if (stream.produce()) return;
    NormedRows<HIDDEN> normed(weight);
    wait_for_previous_kernels();
    normed.into(shared, slice, residual, eps);
    stream.run(slice.count, [&](int row, int output, float sum, float other) {
        store(static_cast<i64>(slice.first + row) * n + output, sum, other);
    });
}

// The slice's rows of x into shared memory.
template <int K>
__device__ static void load_rows(Shared<K, 1>& shared, const Slice& slice, const bf16* x) {
    constexpr int PIECES = K / LANE_K, ALL = ceil_div(ROWS * PIECES, THREADS), AT_ONCE = ALL < 8 ? ALL : 8;
    const uint4* from = reinterpret_cast<const uint4*>(x + static_cast<i64>(slice.first) * K);
    int count = slice.count * PIECES;
    for (int begin = threadIdx.x; begin < count; begin += AT_ONCE * THREADS) {
        uint4 piece[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (begin + i * THREADS < count) piece[i] = load_fresh<uint4>(from + begin + i * THREADS);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int at = begin + i * THREADS;
            if (at < count) *reinterpret_cast<uint4*>(&shared.x[at / PIECES][at % PIECES * LANE_K]) = piece[i];
        }
    }
    sync_workers();
}

__device__ static void store(bf16* to, float sum) { *to = __float2bfloat16(sum); }
__device__ static void store(float* to, float sum) { *to = sum; }

template <int K, class C>
__device__ static void plain_matvec(C* c, const bf16* x, const bf16* w, int rows, int n, int k) {
    expect(k, K);
    Slice slice(rows);
    auto& shared = Shared<K, 1>::get();
    Weights<K, 1> stream(shared, w, n);
    if (stream.produce()) return;
    wait_for_previous_kernels();
    load_rows<K>(shared, slice, x);
    stream.run(slice.count, [&](int row, int output, float sum, float) {
        store(c + static_cast<i64>(slice.first + row) * n + output, sum);
    });
}

// residual = table[ids]; c = norm(residual) · wᵀ
KERNEL(BLOCK, 1)
embed_norm_matmul(bf16* c, float* residual, const i64* ids, const bf16* table, const bf16* weight, const bf16* w,
                  int rows, int n, int k, float eps) {
    norm_matvec<1>(EmbeddedResidual{ids, table, residual}, weight, w, rows, n, k, eps,
                       [&](i64 at, float sum, float) { c[at] = __float2bfloat16(sum); });
}

// residual = before + delta; c = norm(residual) · wᵀ
KERNEL(BLOCK, 1)
norm_matmul(bf16* c, float* residual, const float* before, const bf16* delta, const bf16* weight, const bf16* w,
            int rows, int n, int k, float eps) {
    norm_matvec<1>(AddedResidual{before, delta, residual}, weight, w, rows, n, k, eps,
                       [&](i64 at, float sum, float) { c[at] = __float2bfloat16(sum); });
}

// c = norm(before + delta) · wᵀ, in f32
KERNEL(BLOCK, 1)
norm_matmul_f32(float* c, const float* before, const bf16* delta, const bf16* weight, const bf16* w, int rows, int n,
                int k, float eps) {
    norm_matvec<1>(AddedResidual{before, delta, nullptr}, weight, w, rows, n, k, eps,
                       [&](i64 at, float sum, float) { c[at] = sum; });
}

// residual = before + delta; y = silu(gate) · up of norm(residual) · wᵀ, whose first half is gate, its second up
KERNEL(BLOCK, 1)
norm_gate_up(bf16* y, float* residual, const float* before, const bf16* delta, const bf16* weight, const bf16* w,
             int rows, int n, int k, float eps) {
    norm_matvec<2>(AddedResidual{before, delta, residual}, weight, w, rows, n, k, eps,
                      [&](i64 at, float gate, float up) { y[at] = __float2bfloat16(silu(gate) * up); });
}

// c = x · wᵀ, of attention's width and of the feed-forward's
KERNEL(BLOCK, 1)
output_matmul(bf16* c, const bf16* x, const bf16* w, int rows, int n, int k) {
    plain_matvec<Q_SIZE>(c, x, w, rows, n, k);
}

KERNEL(BLOCK, 1)
down_matmul(bf16* c, const bf16* x, const bf16* w, int rows, int n, int k) {
    plain_matvec<FFN>(c, x, w, rows, n, k);
}

// The same of the residual's width, for norms that stand apart from the product: queries, keys and values in one; gate
// and up in one; logits.
KERNEL(BLOCK, 1)
qkv_matmul(bf16* c, const bf16* x, const bf16* w, int rows, int n, int k) {
    plain_matvec<HIDDEN>(c, x, w, rows, n, k);
}

KERNEL(BLOCK, 1)
gate_up_matmul(bf16* c, const bf16* x, const bf16* w, int rows, int n, int k) {
    plain_matvec<HIDDEN>(c, x, w, rows, n, k);
}

KERNEL(BLOCK, 1)
logits_matmul(float* c, const bf16* x, const bf16* w, int rows, int n, int k) {
    plain_matvec<HIDDEN>(c, x, w, rows, n, k);
}
