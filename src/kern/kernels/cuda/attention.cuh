// What the attention kernels share: tiles of rows of a head in shared memory, the two products over them, and the
// softmax kept up to date tile by tile (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax").
#pragma once
#include "kernel.cuh"
#include "pages.cuh"
#include "tensor_core.cuh"

constexpr int QUERIES = 16;               // that a warp works on at once: the rows of a product
constexpr int PIECE = 8;                  // elements in 16 bytes
constexpr int PIECES = HEAD_DIM / PIECE;  // in a row
constexpr float LOG2_E = 1.44269504f;

// Rows of HEAD_DIM in shared memory, their 16-byte pieces shuffled so that eight rows' pieces of one column lie in
// different banks.
__device__ inline bf16* piece_at(bf16* tile, int row, int piece) {
    return tile + row * HEAD_DIM + (piece ^ (row % 8)) * PIECE;
}

// The operand q [16, HEAD_DIM] of a warp, from a tile.
struct Queries {
    u32 part[HEAD_DIM / 16][4];

    __device__ void load(bf16* tile) {
        int row = lane_index() % 16, piece = lane_index() / 16;
#pragma unroll
        for (int k = 0; k < HEAD_DIM / 16; k++) load_matrices(part[k], piece_at(tile, row, 2 * k + piece));
    }
};

// s [16, KEYS] of a warp's queries and a tile of keys.
template <int KEYS>
__device__ inline void score(float (&s)[KEYS / 8][4], const Queries& q, bf16* keys) {
    int row = lane_index() % 8 + lane_index() / 16 * 8, piece = lane_index() / 8 % 2;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) {
            u32 b[4];
            load_matrices(b, piece_at(keys, n * 8 + row, 2 * k + piece));
            mma(s[n], q.part[k][0], q.part[k][1], q.part[k][2], q.part[k][3], b[0], b[1]);
            mma(s[n + 1], q.part[k][0], q.part[k][1], q.part[k][2], q.part[k][3], b[2], b[3]);
        }
}

// A warp's softmax-weighted sum of values so far. A lane holds two rows of the 16: lane / 4 and eight further on.
struct Weighted {
    float sum[HEAD_DIM / 8][4];  // as c of a product
    float top[2], total[2];      // largest score so far, in powers of two; sum of the weights (this lane's columns)

    __device__ void clear() {
#pragma unroll
        for (int n = 0; n < HEAD_DIM / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[n][i] = 0.0f;
        top[0] = top[1] = -CUDART_INF_F;
        total[0] = total[1] = 0.0f;
    }

    // Take in scores [16, KEYS], scaled and -inf where masked, leaving weights in their place.
    template <int KEYS>
    __device__ void soften(float (&s)[KEYS / 8][4]) {
        float before[2] = {top[0], top[1]};
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) top[i / 2] = fmaxf(top[i / 2], s[n][i]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            top[half] = fmaxf(top[half], __shfl_xor_sync(ALL_LANES, top[half], 1));
            top[half] = fmaxf(top[half], __shfl_xor_sync(ALL_LANES, top[half], 2));
            // A row that has seen no key yet: any finite stand-in keeps its weights at 0.
            float base = top[half] == -CUDART_INF_F ? 0.0f : top[half];
            float factor = exp2f(before[half] - base);
            total[half] *= factor;
#pragma unroll
            for (int n = 0; n < HEAD_DIM / 8; n++) sum[n][2 * half] *= factor, sum[n][2 * half + 1] *= factor;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[n][i] = exp2f(s[n][i] - base);
                    total[half] += s[n][i];
                }
        }
    }

    // sum += weights [16, KEYS] · values [KEYS, HEAD_DIM], a tile.
    template <int KEYS>
    __device__ void add(const float (&weights)[KEYS / 8][4], bf16* values) {
        int row = lane_index() % 16, piece = lane_index() / 16;
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) {
            u32 a[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float* pair = &weights[2 * k + i / 2][i % 2 * 2];
                a[i] = bits_of(__floats2bfloat162_rn(pair[0], pair[1]));
            }
#pragma unroll
            for (int n = 0; n < HEAD_DIM / 8; n += 2) {
                u32 b[4];
                load_matrices_transposed(b, piece_at(values, k * 16 + row, n + piece));
                mma(sum[n], a[0], a[1], a[2], a[3], b[0], b[1]);
                mma(sum[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
            }
        }
    }

    // The sum of a row's weights over its four lanes.
    __device__ float whole_total(int half) const {
        float whole = total[half];
        whole += __shfl_xor_sync(ALL_LANES, whole, 1);
        return whole + __shfl_xor_sync(ALL_LANES, whole, 2);
    }
};
