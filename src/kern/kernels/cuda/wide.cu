// The products of a step of many rows, fused as those of few: the arithmetic of matvec.cu on warpgroups (wide.cuh).
#include "wide_sums.cuh"

#define WIDE_KERNEL(split) \
    extern "C" __global__ void __cluster_dims__(split, 1, 1) __launch_bounds__(WIDE_THREADS, 1)

using Qkv = Division<HIDDEN, WIDE_QKV_SPLIT, WIDE_QKV_ROWS, WIDE_QKV_ATOMS>;
using Output = Division<Q_SIZE, WIDE_OUTPUT_SPLIT, WIDE_OUTPUT_ROWS, WIDE_OUTPUT_ATOMS>;
using Down = Division<FFN, WIDE_DOWN_SPLIT, WIDE_DOWN_ROWS, WIDE_DOWN_ATOMS>;
using GateUp = Division<HIDDEN, 1, WIDE_GATE_UP_ROWS, WIDE_GATE_UP_ATOMS, true>;
using Logits = Division<HIDDEN, 1, WIDE_LOGITS_ROWS, WIDE_LOGITS_ATOMS>;

template <int N_>
struct AtMost {
    static constexpr int N = N_;
};

// Calls `f` for the least of some numbers of rows that is enough.
template <class F>
__device__ static void for_rows(int count, F f) {
    if (count <= 16) f(AtMost<16>{});
    else if (count <= 32) f(AtMost<32>{});
    else f(AtMost<WIDE_ROWS>{});
}

template <class D>
__device__ static void multiply_and_add(const Residual& residual, const bf16* x, const bf16* w, int rows, int n, int k) {
    expect(k, D::K);
    expect(n, HIDDEN);
    RowSlice slice(rows, WIDE_ROWS);
    for_rows(slice.count, [&](auto most) {
        Wide<D, decltype(most)::N> product(WideMemory::get(), slice, w, x, n);
        product.run([] {}, [&](int) { finish_together(product, WideResidual(residual)); });
    });
}

// residual += x · wᵀ, and what the next norm makes of it: of attention's width, and of the feed-forward's
WIDE_KERNEL(WIDE_OUTPUT_SPLIT)
output_matmul_add_wide(bf16* weighted, float* squares, float* residual, const bf16* x, const bf16* w,
                       const bf16* weight, int rows, int n, int k) {
    multiply_and_add<Output>(Residual{weighted, squares, residual, weight}, x, w, rows, n, k);
}

WIDE_KERNEL(WIDE_DOWN_SPLIT)
down_matmul_add_wide(bf16* weighted, float* squares, float* residual, const bf16* x, const bf16* w, const bf16* weight,
                     int rows, int n, int k) {
    multiply_and_add<Down>(Residual{weighted, squares, residual, weight}, x, w, rows, n, k);
}

// c = weighted · wᵀ / rms
WIDE_KERNEL(WIDE_QKV_SPLIT)
rms_matmul_wide(bf16* c, const bf16* weighted, const float* squares, const bf16* w, int rows, int n, int k, float eps) {
    expect(k, HIDDEN);
    RowSlice slice(rows, WIDE_ROWS);
    WideMemory& shared = WideMemory::get();
    for_rows(slice.count, [&](auto most) {
        Wide<Qkv, decltype(most)::N> product(shared, slice, w, weighted, n);
        Inverses<decltype(most)::N> inverses(shared.inverse, slice, squares, eps);
        auto finish = [&](int) {
            inverses.settle();
            finish_together(product, Scaled<bf16>(c, n, slice.first, shared.inverse));
        };
        product.run([&] { inverses.begin(); }, finish);
    });
}

KERNEL(WIDE_THREADS, 1)
rms_matmul_f32_wide(float* c, const bf16* weighted, const float* squares, const bf16* w, int rows, int n, int k,
                    float eps) {
    expect(k, HIDDEN);
    RowSlice slice(rows, WIDE_ROWS);
    WideMemory& shared = WideMemory::get();
    for_rows(slice.count, [&](auto most) {
        Wide<Logits, decltype(most)::N> product(shared, slice, w, weighted, n);
        Scaled<float> scaled(c, n, slice.first, shared.inverse);
        Inverses<decltype(most)::N> inverses(shared.inverse, slice, squares, eps);
        auto finish = [&](int pass) {
            if (pass == 0) inverses.settle();
            int first = product.first_of(pass), count = product.count_of(pass);
            product.each([&](int column, int row, float sum) {
                bool mine = column < count && row < slice.count;
                scaled.store(slice.first + row, first + column, mine, sum, 0.0f, {});
            });
        };
        product.run([&] { inverses.begin(); }, finish);
    });
}

// y = silu(gate) · up of such a product, whose first half is gate, its second up
KERNEL(WIDE_THREADS, 1)
rms_gate_up_wide(bf16* y, const bf16* weighted, const float* squares, const bf16* w, int rows, int n, int k, float eps) {
    expect(k, HIDDEN);
    RowSlice slice(rows, WIDE_ROWS);
    WideMemory& shared = WideMemory::get();
    for_rows(slice.count, [&](auto most) {
        Wide<GateUp, decltype(most)::N> product(shared, slice, w, weighted, n);
        Gated gated(y, n, {squares, eps});
        Inverses<decltype(most)::N> inverses(shared.inverse, slice, squares, eps);
        auto finish = [&](int pass) {
            if (pass == 0) inverses.settle();
            int first = product.first_of(pass), count = product.count_of(pass);
            product.each([&](int output, int row, float gate, float up) {
                if (output >= count || row >= slice.count) return;
                gated.rms.inverse = shared.inverse[row];
                gated.store(slice.first + row, first + output, true, gate, up, {});
            });
        };
        product.run([&] { inverses.begin(); }, finish);
    });
}
