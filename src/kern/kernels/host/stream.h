/* The product of a few rows of A with rows of W as they lie in memory: dot products, each a vector of sums over the
 * depth, which matmul adds up at the end. W is read from memory once, and unpacked once per STREAM_ROWS rows of A.
 * Each sum is in the order of depth, even elements before odd ones: a row has the same bits alone as among others. */
#ifndef STREAM_H
#define STREAM_H
#include "tile.h"

enum {
    STREAM_ROWS = 4,  /* of A, at once */
    STREAM_UNIT = 4,  /* rows of W at once, at most */
    STREAM_COLS = 16, /* rows of W whose sums are kept */
    PREFETCH = 8192,  /* bytes ahead in W */
#if defined(__AVX512F__) || defined(__aarch64__)
    STREAM_PAIR = 4, /* rows of W at once where A has more than one: 16 sums of 32 registers */
#else
    STREAM_PAIR = 2, /* 8 of 16 */
#endif
};

/* x = `rows` rows of A as stream_cols reads them, zeros past `live`: for each TILE_COLS elements of depth the even
 * ones of row 0, its odd ones, those of row 1, ... */
static inline void lay_rows(float *x, int64_t rows, int64_t live, const bf16 *a, int64_t k, int64_t depth) {
    for (int64_t i = 0; i < depth; i += TILE_COLS) {
        for (int64_t r = 0; r < rows; r++, x += TILE_COLS) {
            vec_u32 pairs = {0};
            if (r < live)
                pairs = i + TILE_COLS <= depth ? load_pairs(a + r * k + i) : load_pairs_part(a + r * k + i, depth - i);
            store(x, even_of(pairs));
            store(x + LANES, odd_of(pairs));
        }
    }
}

/* sum[r][c] += x[r] * pairs[c] */
ALWAYS_INLINE void add_pairs(const int rows, const int cols, vec (*sum)[STREAM_UNIT], const vec_u32 *pairs,
                             const float *x) {
    vec even[STREAM_UNIT], odd[STREAM_UNIT];
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
        even[c] = even_of(pairs[c]);
        odd[c] = odd_of(pairs[c]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        vec x_even = load(x + r * TILE_COLS), x_odd = load(x + r * TILE_COLS + LANES);
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) sum[r][c] += even[c] * x_even;
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) sum[r][c] += odd[c] * x_odd;
    }
}

/* sums[r * STREAM_COLS + c] (+)= the products of row r of x and row c of w, lane by lane */
ALWAYS_INLINE void stream_cols(const int rows, const int cols, vec *sums, const bf16 *w, int64_t k, const float *x,
                               int64_t depth, int accumulate) {
    vec sum[STREAM_ROWS][STREAM_UNIT];
    vec_u32 pairs[STREAM_UNIT];
    int64_t i = 0;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) sum[r][c] = accumulate ? sums[r * STREAM_COLS + c] : (vec){0};
    for (; i + TILE_COLS <= depth; i += TILE_COLS) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
            __builtin_prefetch((const char *)(w + c * k + i) + PREFETCH);
            pairs[c] = load_pairs(w + c * k + i);
        }
        add_pairs(rows, cols, sum, pairs, x + i * rows);
    }
    if (i < depth) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) pairs[c] = load_pairs_part(w + c * k + i, depth - i);
        add_pairs(rows, cols, sum, pairs, x + i * rows);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) sums[r * STREAM_COLS + c] = sum[r][c];
}

/* The same for `cols` <= STREAM_COLS rows of w and `blocks` blocks of rows of x, `stride` floats apart. */
ALWAYS_INLINE void stream_group(const int rows, vec *sums, const bf16 *w, int64_t cols, int64_t k, const float *x,
                                int64_t blocks, int64_t stride, int64_t depth, int accumulate) {
    const int unit = rows == 1 ? STREAM_UNIT : STREAM_PAIR;
    int64_t c = 0;
    for (; c + unit <= cols; c += unit)
        for (int64_t b = 0; b < blocks; b++)
            stream_cols(rows, unit, sums + b * rows * STREAM_COLS + c, w + c * k, k, x + b * stride, depth, accumulate);
    for (; c < cols; c++)
        for (int64_t b = 0; b < blocks; b++)
            stream_cols(rows, 1, sums + b * rows * STREAM_COLS + c, w + c * k, k, x + b * stride, depth, accumulate);
}

#endif
