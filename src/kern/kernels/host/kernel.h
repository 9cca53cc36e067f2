/* What every kernel here shares: bf16 conversion, a fast exponential, and rows divided among threads. */
#ifndef KERNEL_H
#define KERNEL_H
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kern_host.h"

#if defined(KERN_LEVEL) && ((KERN_LEVEL < 4 && defined(__AVX512F__)) || (KERN_LEVEL < 3 && defined(__AVX__)) || \
                            (KERN_LEVEL < 2 && defined(__SSE3__)))
#error "the compiler's options allow instructions that the target does not have; leave them out of CC"
#endif

typedef uint16_t bf16;

static inline float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float from_bf16(bf16 value) { return from_bits((uint32_t)value << 16); }

/* Round to nearest, ties to even; a NaN stays a NaN. */
static inline bf16 to_bf16(float value) {
    uint32_t bits = to_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (bf16)(value == value ? rounded : (bits >> 16) | 0x40u);
}

/* e^x within 2 ulp, 0 below -87, written without branches so that loops over it vectorise.
 * Range reduction by powers of two; the polynomial's coefficients are those of Cephes' expf. */
static inline float fast_exp(float x) {
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    float clamped = x > 88.72f ? 88.72f : x < -87.0f ? -87.0f : x;
    float shifted = clamped * 1.44269504f + round;
    float n = shifted - round;
    float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    float result = from_bits(to_bits(p) + (to_bits(shifted) << 23));
    result = x < -87.0f ? 0.0f : result;
    result = x > 88.72f ? INFINITY : result;
    return x == x ? result : x;
}

/* The row of a table for an id. Below 0 no token was chosen; the row is any, for what comes of it is dropped. */
static inline int64_t row_of(int64_t id) { return id < 0 ? 0 : id; }

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Below this much work (elements touched) starting the other threads costs more than they save. */
enum { PARALLEL_WORK = 32768 };

typedef void (*rows_body)(const kern_launch *launch, void *const *params, int64_t begin, int64_t end);

/* Run `body` over the rows [0, rows), a contiguous share per thread. A share begins at a multiple of `unit`. */
static inline void for_rows(const kern_launch *launch, void *const *params, int64_t rows, int64_t unit,
                            int64_t work, rows_body body) {
    if (launch->threads == 1 || rows <= unit || work < PARALLEL_WORK) {
        body(launch, params, 0, rows);
        return;
    }
    int64_t units = (rows + unit - 1) / unit;
#pragma omp parallel num_threads(launch->threads)
    {
        int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
        int64_t begin = units * thread / threads * unit, end = units * (thread + 1) / threads * unit;
        end = least(end, rows);
        if (begin < end) body(launch, params, begin, end);
    }
}

#endif
