/* Vectors as wide as the target's registers: GCC's and Clang's vector extension, the same code everywhere. */
#ifndef VECTOR_H
#define VECTOR_H
#include "kernel.h"

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef uint32_t vec_u32 __attribute__((vector_size(LANES * 4)));
typedef int32_t vec_i32 __attribute__((vector_size(LANES * 4)));
typedef uint16_t vec_u16 __attribute__((vector_size(LANES * 2)));

static inline vec load(const float *from) {
    vec value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void store(float *to, vec value) { memcpy(to, &value, sizeof value); }

/* LANES consecutive bf16. */
static inline vec load_bf16(const bf16 *from) {
    vec_u16 half;
    memcpy(&half, from, sizeof half);
    return (vec)(__builtin_convertvector(half, vec_u32) << 16);
}

static inline void store_bf16(bf16 *to, vec value) {
    vec_u32 bits = (vec_u32)value;
    vec_u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    vec_u32 number = (vec_u32)(value == value);
    vec_u32 result = (rounded & number) | (((bits >> 16) | 0x40u) & ~number);
    vec_u16 half = __builtin_convertvector(result, vec_u16);
    memcpy(to, &half, sizeof half);
}

/* 2 * LANES consecutive bf16, as pairs: the lower element of each pair in the low half of its lane. */
static inline vec_u32 load_pairs(const bf16 *from) {
    vec_u32 pairs;
    memcpy(&pairs, from, sizeof pairs);
    return pairs;
}

/* The first `count` < 2 * LANES elements of such a load, and zeros. */
static inline vec_u32 load_pairs_part(const bf16 *from, int64_t count) {
    vec_u32 pairs = {0};
    memcpy(&pairs, from, (size_t)count * sizeof(bf16));
    return pairs;
}

static inline vec even_of(vec_u32 pairs) { return (vec)(pairs << 16); }
static inline vec odd_of(vec_u32 pairs) { return (vec)(pairs & 0xffff0000u); }

static inline vec larger(vec a, vec b) {
    vec_u32 take = (vec_u32)(a > b);
    return (vec)(((vec_u32)a & take) | ((vec_u32)b & ~take));
}

static inline float sum_of(vec value) {
    float lanes[LANES];
    store(lanes, value);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
    return lanes[0];
}

static inline float largest_of(vec value) {
    float lanes[LANES];
    store(lanes, value);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
    return lanes[0];
}

/* The largest number among `count` values; -infinity where all are NaNs. */
static inline float largest_among(const float *values, int64_t count) {
    vec most = (vec){0} - INFINITY;
    int64_t whole = count - count % LANES;
    for (int64_t i = 0; i < whole; i += LANES) most = larger(load(values + i), most);
    float top = largest_of(most);
    for (int64_t i = whole; i < count; i++) top = values[i] > top ? values[i] : top;
    return top;
}

/* The largest among `count` values, +infinity where one of them is a NaN; -infinity where there are none. */
static inline float largest_or_infinity(const float *values, int64_t count) {
    vec infinity = (vec){0} + INFINITY, most = -infinity;
    vec_u32 below = ~(vec_u32){0}; /* ones where all so far are below +infinity, as no NaN is */
    int64_t whole = count - count % LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        vec value = load(values + i);
        most = larger(value, most);
        below &= (vec_u32)(value < infinity);
    }
    float top = largest_of((vec)(((vec_u32)most & below) | ((vec_u32)infinity & ~below)));
    for (int64_t i = whole; i < count; i++) top = values[i] <= top ? top : values[i] < INFINITY ? values[i] : INFINITY;
    return top;
}

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vec_i32){__VA_ARGS__})
#endif

/* The lower, or the upper, halves of a and b, interleaved. */
#if defined(__AVX512F__)
#define ZIP_LOW(a, b) SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b) SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined(__AVX2__)
#define ZIP_LOW(a, b) SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define ZIP_LOW(a, b) SHUFFLE(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) SHUFFLE(a, b, 2, 6, 3, 7)
#endif

/* Transpose a LANES x LANES matrix: log2(LANES) rounds, each interleaving row i with row i + LANES / 2. */
static inline void transpose(vec_u32 rows[LANES]) {
#pragma GCC unroll 4
    for (int round = 1; round < LANES; round *= 2) {
        vec_u32 next[LANES];
#pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = ZIP_LOW(rows[i], rows[i + LANES / 2]);
            next[2 * i + 1] = ZIP_HIGH(rows[i], rows[i + LANES / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) rows[i] = next[i];
    }
}

/* Lane i is sum_of(values[i]), the same bits: log2(LANES) rounds, each adding the halves of two vectors at once. */
static inline vec sums_of(const vec values[LANES]) {
    vec_u32 sums[LANES];
    memcpy(sums, values, sizeof sums);
#pragma GCC unroll 4
    for (int count = LANES / 2; count > 0; count /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < count; i++) {
            vec_u32 low = ZIP_LOW(sums[i], sums[i + count]), high = ZIP_HIGH(sums[i], sums[i + count]);
            sums[i] = (vec_u32)((vec)low + (vec)high);
        }
    return (vec)sums[0];
}

#endif
