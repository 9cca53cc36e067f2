// The products of a step of many rows, fused as those of few: matvec.cu's arithmetic, on tensor cores (wide.cuh).
#include "wide.cuh"

#define WIDE_KERNEL(split) \
    extern "C" __global__ void __cluster_dims__(split, 1, 1) __launch_bounds__(WIDE_THREADS, 1)

using Qkv = Division<HIDDEN, 1, WIDE_QKV_SPLIT, WIDE_QKV_DEEP, WIDE_QKV_TILES>;
using GateUp = Division<HIDDEN, 2, WIDE_GATE_UP_SPLIT, WIDE_GATE_UP_DEEP, WIDE_GATE_UP_TILES>;
using Output = Division<Q_SIZE, 1, WIDE_OUTPUT_SPLIT, WIDE_OUTPUT_DEEP, WIDE_OUTPUT_TILES>;
using Down = Division<FFN, 1, WIDE_DOWN_SPLIT, WIDE_DOWN_DEEP, WIDE_DOWN_TILES>;
using Logits = Division<HIDDEN, 1, WIDE_LOGITS_SPLIT, WIDE_LOGITS_DEEP, WIDE_LOGITS_TILES>;

// c = weighted · wᵀ / rms
WIDE_KERNEL(WIDE_QKV_SPLIT)
rms_matmul_wide(bf16* c, const bf16* weighted, const float* squares, const bf16* w, int rows, int n, int k, float eps) {
    multiply_wide<Qkv>(Normed<bf16>{c, n, {squares, eps}}, weighted, w, rows, n, k);
}

WIDE_KERNEL(WIDE_LOGITS_SPLIT)
rms_matmul_f32_wide(float* c, const bf16* weighted, const float* squares, const bf16* w, int rows, int n, int k,
                    float eps) {
    multiply_wide<Logits>(Normed<float>{c, n, {squares, eps}}, weighted, w, rows, n, k);
}

// y = silu(gate) · up of such a product, whose first half is gate, its second up
WIDE_KERNEL(WIDE_GATE_UP_SPLIT)
rms_gate_up_wide(bf16* y, const bf16* weighted, const float* squares, const bf16* w, int rows, int n, int k, float eps) {
    multiply_wide<GateUp>(Gated{y, n, {squares, eps}}, weighted, w, rows, n, k);
}

// residual += x · wᵀ, and what the next norm makes of it: of attention's width, and of the feed-forward's
WIDE_KERNEL(WIDE_OUTPUT_SPLIT)
output_matmul_add_wide(bf16* weighted, float* squares, float* residual, const bf16* x, const bf16* w,
                       const bf16* weight, int rows, int n, int k) {
    expect(n, HIDDEN);
    multiply_wide<Output>(Residual{weighted, squares, residual, weight}, x, w, rows, n, k);
}

WIDE_KERNEL(WIDE_DOWN_SPLIT)
down_matmul_add_wide(bf16* weighted, float* squares, float* residual, const bf16* x, const bf16* w, const bf16* weight,
                     int rows, int n, int k) {
    expect(n, HIDDEN);
    multiply_wide<Down>(Residual{weighted, squares, residual, weight}, x, w, rows, n, k);
}
