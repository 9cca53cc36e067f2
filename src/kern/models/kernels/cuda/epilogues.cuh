// What becomes of a product's sums. `load` and `store` are called by whole warps, each for columns of one row; `mine`
// says whether the lane has one.
#pragma once
#include "matvec.cuh"

constexpr int SQUARES = MATVEC_BLOCKS;  // partial sums of squares of a row of the residual stream: one a block

__device__ inline void store_as(bf16* to, float sum) { *to = __float2bfloat16(sum); }
__device__ inline void store_as(float* to, float sum) { *to = sum; }

// c = sum
template <class C>
struct Stored {
    struct Needed {};
    C* c;
    int n;

    __device__ Needed load(int, int, bool) const { return {}; }
    __device__ void store(int row, int output, bool mine, float sum, float, const Needed&) const {
        if (mine) store_as(c + static_cast<i64>(row) * n + output, sum);
    }
    __device__ void finish(int) const {}
};

// c += sum
struct Added {
    struct Needed {
        float before;
    };
    float* c;
    int n;

    __device__ Needed load(int row, int output, bool mine) const {
        return {mine ? load_fresh<float>(c + static_cast<i64>(row) * n + output) : 0.0f};
    }
    __device__ void store(int row, int output, bool mine, float sum, float, const Needed& needed) const {
        if (mine) c[static_cast<i64>(row) * n + output] = needed.before + sum;
    }
    __device__ void finish(int) const {}
};

// 1 / rms of a row of the residual stream, by which the product of a weighted row remains to be multiplied.
struct Rms {
    struct Needed {
        float squares[ceil_div(SQUARES, WARP)];
    };
    const float* squares;
    float eps;

    __device__ Needed load(int row) const {
        Needed needed;
#pragma unroll
        for (int i = 0; i < ceil_div(SQUARES, WARP); i++) {
            int at = i * WARP + lane_index();
            needed.squares[i] = at < SQUARES ? load_fresh<float>(squares + static_cast<i64>(row) * SQUARES + at) : 0.0f;
        }
        return needed;
    }
    __device__ float inverse(const Needed& needed) const {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < ceil_div(SQUARES, WARP); i++) sum += needed.squares[i];
        return inverse_rms(warp_sum(sum), HIDDEN, eps);
    }
};

// c = sum / rms
template <class C>
struct Normed {
    using Needed = Rms::Needed;
    C* c;
    int n;
    Rms rms;

    __device__ Needed load(int row, int, bool) const { return rms.load(row); }
    __device__ void store(int row, int output, bool mine, float sum, float, const Needed& needed) const {
        float inverse = rms.inverse(needed);
        if (mine) store_as(c + static_cast<i64>(row) * n + output, sum * inverse);
    }
    __device__ void finish(int) const {}
};

// c = silu(gate / rms) · up / rms
struct Gated {
    using Needed = Rms::Needed;
    bf16* c;
    int n;
    Rms rms;

    __device__ Needed load(int row, int, bool) const { return rms.load(row); }
    __device__ void store(int row, int output, bool mine, float gate, float up, const Needed& needed) const {
        float inverse = rms.inverse(needed);
        if (mine) c[static_cast<i64>(row) * n + output] = __float2bfloat16(silu(gate * inverse) * (up * inverse));
    }
    __device__ void finish(int) const {}
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

    __device__ Needed load(int row, int output, bool mine) const {
        if (!mine) return {};
        return {load_fresh<float>(residual + static_cast<i64>(row) * HIDDEN + output), weight[output]};
    }
    // A product is rounded before it is added, as where it stands in a buffer of its own.
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
