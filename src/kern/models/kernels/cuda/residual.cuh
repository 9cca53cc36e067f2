// X of a product as the norm of the residual stream, computed by each block for itself: a row is read from the L2 in
// less time than another kernel takes to start.
#pragma once
#include "matvec.cuh"

// The residual stream after adding to it, and where the sum is stored (null: nowhere).
struct AddedResidual {
    const float* residual;
    const bf16* delta;
    float* stored;

    __device__ float4 load(i64 row, int at, int width) const {
        float4 x = load_fresh<float4>(residual + row * width + at);
        Bf16x4 added = load_fresh<Bf16x4>(delta + row * width + at);
        float2 low = __bfloat1622float2(added.pair[0]), high = __bfloat1622float2(added.pair[1]);
        return {x.x + low.x, x.y + low.y, x.z + high.x, x.w + high.y};
    }
};

// The residual stream as it starts: rows of the embedding table.
struct EmbeddedResidual {
    const i64* ids;
    const bf16* table;
    float* stored;

    __device__ float4 load(i64 row, int at, int width) const {
        const bf16* from = table + load_fresh<i64>(ids + row) * width + at;
        Bf16x4 x = *reinterpret_cast<const Bf16x4*>(from);
        float2 low = __bfloat1622float2(x.pair[0]), high = __bfloat1622float2(x.pair[1]);
        return {low.x, low.y, high.x, high.y};
    }
};

template <int K>
struct NormedRows {
    static constexpr int VECTORS = K / 4;
    static constexpr int MINE = ceil_div(VECTORS, THREADS);  // of a row, for each thread
    Bf16x4 gain[MINE];

    // Element / 4 of a row that is this thread's i-th.
    __device__ static int vector(int i) { return i * THREADS + threadIdx.x; }

    // The norm's weight, which can be had before the residual is there.
    __device__ explicit NormedRows(const bf16* weight) {
#pragma unroll
        for (int i = 0; i < MINE; i++)
            if (vector(i) < VECTORS) gain[i] = reinterpret_cast<const Bf16x4*>(weight)[vector(i)];
    }

    __device__ void store(bf16* to, const float4& x, float scale, const Bf16x4& gain) const {
        float2 low = __bfloat1622float2(gain.pair[0]), high = __bfloat1622float2(gain.pair[1]);
        Bf16x4 y;
        y.pair[0] = __floats2bfloat162_rn(x.x * scale * low.x, x.y * scale * low.y);
        y.pair[1] = __floats2bfloat162_rn(x.z * scale * high.x, x.w * scale * high.y);
        *reinterpret_cast<Bf16x4*>(to) = y;
    }

    // x of the slice's rows into shared memory: residual / sqrt(mean(residual^2) + eps) · weight.
    template <class Memory, class Residual>
    __device__ void into(Memory& shared, const Slice& slice, const Residual& residual, float eps) const {
#pragma unroll
        for (int begin = 0; begin < ROWS; begin += GROUP)
            if (begin < slice.count) group(shared, slice, residual, eps, begin);
        sync_workers();
    }

   private:
    static constexpr int GROUP = ROWS < 4 ? ROWS : 4;  // rows at once: as many as fit the registers

    template <class Memory, class Residual>
    __device__ void group(Memory& shared, const Slice& slice, const Residual& residual, float eps, int begin) const {
        // The last block has the fewest outputs, so it stores the residual.
        bool stores = residual.stored != nullptr && blockIdx.x == gridDim.x - 1;
        int rows = min(slice.count - begin, GROUP);
        i64 first = slice.first + begin;
        float4 x[GROUP][MINE];
#pragma unroll
        for (int row = 0; row < GROUP; row++)
#pragma unroll
            for (int i = 0; i < MINE; i++)
                if (row < rows && vector(i) < VECTORS) x[row][i] = residual.load(first + row, vector(i) * 4, K);
#pragma unroll
        for (int row = 0; row < GROUP; row++) {
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < MINE; i++) {
                if (row >= rows || vector(i) >= VECTORS) continue;
                float4 v = x[row][i];
                sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
                if (stores) reinterpret_cast<float4*>(residual.stored + (first + row) * K)[vector(i)] = v;
            }
            sum = warp_sum(sum);
            if (lane_index() == 0) shared.squares[begin + row][warp_index()] = sum;
        }
        sync_workers();
#pragma unroll
        for (int row = 0; row < GROUP; row++) {
            float sum = 0.0f;
#pragma unroll
            for (int warp = 0; warp < MATVEC_WARPS; warp++) sum += shared.squares[begin + row][warp];
            float scale = inverse_rms(sum, K, eps);
#pragma unroll
            for (int i = 0; i < MINE; i++)
                if (row < rows && vector(i) < VECTORS)
                    store(&shared.x[begin + row][vector(i) * 4], x[row][i], scale, gain[i]);
        }
    }
};
