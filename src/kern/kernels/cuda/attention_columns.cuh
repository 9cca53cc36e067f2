// The two products of attention of one token, over a page of keys and one of values: the queries of a group are the
// columns of a product, of which there are eight, rather than its rows, of which there are sixteen.
#pragma once
#include "attention.cuh"

constexpr int TILE_QUERIES = 8;                       // the columns of a product
constexpr int TILES = ceil_div(GROUP, TILE_QUERIES);  // of queries

// Two pieces of a row are this far apart times the exclusive or of their indices: rows begin at multiples of their size.
constexpr u32 PIECE_BYTES = PIECE * sizeof(bf16);

// The queries of a group as columns of a product.
struct QueryColumns {
    u32 part[TILES][HEAD_DIM / 16][2];

    __device__ void load(bf16* tile) {
        int row = lane_index() % 8, piece = lane_index() / 8;
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int k = 0; k < HEAD_DIM / 16; k += 2) {
                u32 b[4];
                load_matrices(b, piece_at(tile, n * TILE_QUERIES + row, 2 * k + piece));
                part[n][k][0] = b[0], part[n][k][1] = b[1];
                part[n][k + 1][0] = b[2], part[n][k + 1][1] = b[3];
            }
    }
};

// Scores [PAGE, TILE_QUERIES] of a page of keys.
__device__ static void score_page(float (&s)[TILES][4], const QueryColumns& q, bf16* keys) {
    u32 at = shared_address(piece_at(keys, lane_index() % 16, lane_index() / 16));
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
        u32 a[4];
        load_matrices(a, at ^ 2 * k * PIECE_BYTES);
#pragma unroll
        for (int n = 0; n < TILES; n++)
            mma(s[n], a[0], a[1], a[2], a[3], q.part[n][k][0], q.part[n][k][1]);
    }
}

// A matrix of 8 × 8 with its rows as columns.
__device__ inline u32 transposed(u32 matrix) {
    u32 to;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(matrix));
    return to;
}

// A warp's softmax-weighted sums of values so far. With g = lane / 4 and t = lane % 4 a lane holds, of queries 2t and
// 2t + 1 of each tile, the elements g and g + 8 of every sixteen.
struct ColumnSums {
    float sum[TILES][HEAD_DIM / 16][4];
    float top[TILES][2], total[TILES][2];  // largest score so far, in powers of two; sum of the weights (this lane's)

    __device__ void clear() {
#pragma unroll
        for (int n = 0; n < TILES; n++) {
#pragma unroll
            for (int m = 0; m < HEAD_DIM / 16; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) sum[n][m][i] = 0.0f;
            top[n][0] = top[n][1] = -CUDART_INF_F;
            total[n][0] = total[n][1] = 0.0f;
        }
    }

    // Take in scores, scaled and -inf where masked, leaving weights in their place.
    __device__ void soften(float (&s)[TILES][4]) {
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int q = 0; q < 2; q++) {
                float before = top[n][q], now = fmaxf(before, fmaxf(s[n][q], s[n][q + 2]));
#pragma unroll
                for (int lanes = 4; lanes < WARP; lanes *= 2)
                    now = fmaxf(now, __shfl_xor_sync(ALL_LANES, now, lanes));
                // A query that has seen no key yet: any finite stand-in keeps its weights at 0.
                float base = now == -CUDART_INF_F ? 0.0f : now, factor = exp2f(before - base);
                top[n][q] = now;
#pragma unroll
                for (int m = 0; m < HEAD_DIM / 16; m++) sum[n][m][q] *= factor, sum[n][m][q + 2] *= factor;
                s[n][q] = exp2f(s[n][q] - base);
                s[n][q + 2] = exp2f(s[n][q + 2] - base);
                total[n][q] = total[n][q] * factor + (s[n][q] + s[n][q + 2]);
            }
    }

    // sum += valuesᵀ [HEAD_DIM, PAGE] · weights [PAGE, TILE_QUERIES].
    __device__ void add(const float (&weights)[TILES][4], bf16* values) {
        u32 b[TILES][2];
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                b[n][i] = transposed(bits_of(__floats2bfloat162_rn(weights[n][2 * i], weights[n][2 * i + 1])));
        int row = lane_index() % 8 + lane_index() / 16 * 8, piece = lane_index() / 8 % 2;
        u32 at = shared_address(piece_at(values, row, piece));
#pragma unroll
        for (int m = 0; m < HEAD_DIM / 16; m++) {
            u32 a[4];
            load_matrices_transposed(a, at ^ 2 * m * PIECE_BYTES);
#pragma unroll
            for (int n = 0; n < TILES; n++) mma(sum[n][m], a[0], a[1], a[2], a[3], b[n][0], b[n][1]);
        }
    }

    // The sum of a query's weights over the lanes that share it.
    __device__ float whole_total(int tile, int q) const {
        float whole = total[tile][q];
#pragma unroll
        for (int lanes = 4; lanes < WARP; lanes *= 2) whole += __shfl_xor_sync(ALL_LANES, whole, lanes);
        return whole;
    }
};
