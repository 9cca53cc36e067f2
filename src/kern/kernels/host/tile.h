/* The register-blocked product behind matmul and attention: C[rows, TILE_COLS] (+)= A[rows, depth] * B[depth, cols]
 * in f32. A is row-major, B one panel of columns; packing from bf16 into both is here too. Each element of C is
 * summed in the order of depth, whatever the blocking of rows. */
#ifndef TILE_H
#define TILE_H
#include "vector.h"

enum {
    TILE_COLS = 2 * LANES,
#if defined(__AVX512F__) || defined(__aarch64__)
    TILE_ROWS = 12, /* 24 accumulators of 32 registers */
#else
    TILE_ROWS = 6, /* 12 of 16 */
#endif
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE void tile_rows(const int rows, float *c, int64_t ldc, const float *a, const int64_t lda,
                             const float *b, int64_t ldb, int64_t depth, int accumulate) {
    vec sum[TILE_ROWS][2];
#pragma GCC unroll 14
    for (int r = 0; r < rows; r++) {
        sum[r][0] = accumulate ? load(c + r * ldc) : (vec){0};
        sum[r][1] = accumulate ? load(c + r * ldc + LANES) : (vec){0};
    }
#pragma GCC unroll 2
    for (int64_t d = 0; d < depth; d++) {
        vec left = load(b + d * ldb), right = load(b + d * ldb + LANES);
#pragma GCC unroll 14
        for (int r = 0; r < rows; r++) {
            sum[r][0] += a[r * lda + d] * left;
            sum[r][1] += a[r * lda + d] * right;
        }
    }
#pragma GCC unroll 14
    for (int r = 0; r < rows; r++) {
        store(c + r * ldc, sum[r][0]);
        store(c + r * ldc + LANES, sum[r][1]);
    }
}

/* Any number of rows. `lda` must be a compile-time constant, so that the rows of A need one register. */
ALWAYS_INLINE void tile_product(int64_t rows, float *c, int64_t ldc, const float *a, const int64_t lda,
                                const float *b, int64_t ldb, int64_t depth, int accumulate) {
    int64_t r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
        tile_rows(TILE_ROWS, c + r * ldc, ldc, a + r * lda, lda, b, ldb, depth, accumulate);
    for (; r + 4 <= rows; r += 4) tile_rows(4, c + r * ldc, ldc, a + r * lda, lda, b, ldb, depth, accumulate);
    for (; r < rows; r++) tile_rows(1, c + r * ldc, ldc, a + r * lda, lda, b, ldb, depth, accumulate);
}

/* to[d * ld + r] = from[r * stride + d] for d < depth and r < LANES; zero for r >= rows. */
static inline void pack_transposed(float *to, int64_t ld, const bf16 *from, int64_t stride, int64_t rows,
                                   int64_t depth) {
    for (int64_t d = 0; d < depth; d += TILE_COLS) {
        int64_t count = least(TILE_COLS, depth - d);
        vec_u32 pairs[LANES];
        if (rows >= LANES && count == TILE_COLS) {
#pragma GCC unroll 16
            for (int r = 0; r < LANES; r++) pairs[r] = load_pairs(from + r * stride + d);
        } else {
            for (int r = 0; r < LANES; r++)
                pairs[r] = r < rows ? load_pairs_part(from + r * stride + d, count) : (vec_u32){0};
        }
        transpose(pairs);
        for (int i = 0; i < count / 2; i++) {
            store(to + (d + 2 * i) * ld, even_of(pairs[i]));
            store(to + (d + 2 * i + 1) * ld, odd_of(pairs[i]));
        }
        if (count % 2) store(to + (d + count - 1) * ld, even_of(pairs[count / 2]));
    }
}

/* to[i] = from[i] for i < count, zero up to `padded`. */
static inline void unpack_row(float *to, const bf16 *from, int64_t count, int64_t padded) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load_bf16(from + i));
    for (; i < count; i++) to[i] = from_bf16(from[i]);
    for (; i < padded; i++) to[i] = 0.0f;
}

#endif
