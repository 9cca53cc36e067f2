// What becomes of a product's sums. All is called by whole warps, each for columns of one row: `begin` before the first
// tiles are multiplied and `settle` after them, `load` and `store` likewise for each batch of tiles, where `mine` says
// whether the lane has a column, and `finish` at the end.
#pragma once
#include "matvec.cuh"

constexpr int SQUARES = MATVEC_BLOCKS;  // partial sums of squares of a row of the residual stream: one per block

__device__ inline void store_as(bf16* to, float sum) { *to = __float2bfloat16(sum); }
__device__ inline void store_as(float* to, float sum) { *to = sum; }

// The base of epilogues that load nothing for their columns.
struct NothingLoaded {
    struct Needed {};

    __device__ void begin(int) const {}
    __device__ void settle() const {}
    __device__ Needed load(int, int, bool) const { return {}; }
    __device__ void finish(int) const {}
};

// c = sum
template <class C>
struct Stored : NothingLoaded {
    C* c;
    int n;

    __device__ Stored(C* c, int n) : c(c), n(n) {}
    __device__ void store(int row, int output, bool mine, float sum, float, const Needed&) const {
        if (mine) store_as(c + static_cast<i64>(row) * n + output, sum);
    }
};

// c += sum
struct Added {
    struct Needed {
        float before;
    };
    float* c;
    int n;

    __device__ void begin(int) const {}
    __device__ void settle() const {}
    __device__ Needed load(int row, int output, bool mine) const {
        return {mine ? load_fresh<float>(c + static_cast<i64>(row) * n + output) : 0.0f};
    }
    __device__ void store(int row, int output, bool mine, float sum, float, const Needed& needed) const {
        if (mine) c[static_cast<i64>(row) * n + output] = needed.before + sum;
    }
    __device__ void finish(int) const {}
};

// 1 / rms of a row of the residual stream, by which the product of a weighted row remains to be multiplied. It is asked
// for before the first tiles are multiplied, and summed up after them.
struct Rms {
    const float* squares;
    float eps;
    float share[ceil_div(SQUARES, WARP)] = {}, inverse = 0.0f;

    __device__ void begin(int row) {
#pragma unroll
        for (int i = 0; i < ceil_div(SQUARES, WARP); i++) {
            int at = i * WARP + lane_index();
            share[i] = at < SQUARES ? load_fresh<float>(squares + static_cast<i64>(row) * SQUARES + at) : 0.0f;
        }
    }
    __device__ void settle() {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < ceil_div(SQUARES, WARP); i++) sum += share[i];
        inverse = inverse_rms(warp_sum(sum), HIDDEN, eps);
    }
};

// c = sum / rms
template <class C>
struct Normed : NothingLoaded {
    C* c;
    int n;
    Rms rms;

    __device__ Normed(C* c, int n, const Rms& rms) : c(c), n(n), rms(rms) {}
    __device__ void begin(int row) { rms.begin(row); }
    __device__ void settle() { rms.settle(); }
    __device__ void store(int row, int output, bool mine, float sum, float, const Needed&) const {
        if (mine) store_as(c + static_cast<i64>(row) * n + output, sum * rms.inverse);
    }
};

// c = silu(gate / rms) · up / rms
struct Gated : NothingLoaded {
    bf16* c;
    int n;
    Rms rms;

    __device__ Gated(bf16* c, int n, const Rms& rms) : c(c), n(n), rms(rms) {}
    __device__ void begin(int row) { rms.begin(row); }
    __device__ void settle() { rms.settle(); }
    __device__ void store(int row, int output, bool mine, float gate, float up, const Needed&) const {
        float y = silu(gate * rms.inverse) * (up * rms.inverse);
        if (mine) c[static_cast<i64>(row) * n + output] = __float2bfloat16(y);
    }
};

// residual += sum; weighted = residual · weight; squares: this block's share of the sum of residual².
struct Residual {
    struct Needed {
        float residual;
        bf16 weight;
    };
    bf16* weighted;
    float *squares, *residual;
    const bf16* weight;
    float square = 0.0f;

    __device__ void begin(int) const {}
    __device__ void settle() const {}
    __device__ Needed load(int row, int output, bool mine) const {
        if (!mine) return {};
        return {load_fresh<float>(residual + static_cast<i64>(row) * HIDDEN + output), weight[output]};
    }
    // A product is rounded before it is added, as if it were in its own buffer.
    __device__ void store(int row, int output, bool mine, float sum, float, const Needed& needed) {
        if (!mine) return;
        i64 at = static_cast<i64>(row) * HIDDEN + output;
        float x = needed.residual + __bfloat162float(__float2bfloat16(sum));
        residual[at] = x;
        weighted[at] = __float2bfloat16(x * __bfloat162float(needed.weight));
        square += x * x;
    }
    __device__ void finish(int row) const {
        float sum = warp_sum(square);
        if (lane_index() == 0) squares[static_cast<i64>(row) * SQUARES + blockIdx.x] = sum;
    }
};
