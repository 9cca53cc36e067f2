/* Small kernels for tests of everything above the device: each is easy to compute again in numpy. */
#include "kern_host.h"

/* out[r][j] = a[r][j] + factor * b[j] */
KERN_KERNEL(add_scaled_f32, "ptr,ptr,ptr,f32,i32") {
    float *out = KERN_ARG(float *, 0);
    const float *a = KERN_ARG(const float *, 1), *b = KERN_ARG(const float *, 2);
    float factor = KERN_ARG(float, 3);
    int32_t columns = KERN_ARG(int32_t, 4);
    for (uint32_t row = 0; row < launch->grid.x; row++)
        for (int32_t j = 0; j < columns; j++)
            out[row * columns + j] = a[row * columns + j] + factor * b[j];
}

/* total[j] += x[r][j] over all rows */
KERN_KERNEL(accumulate_f32, "ptr,ptr,i32") {
    float *total = KERN_ARG(float *, 0);
    const float *x = KERN_ARG(const float *, 1);
    int32_t columns = KERN_ARG(int32_t, 2);
    for (uint32_t row = 0; row < launch->grid.x; row++)
        for (int32_t j = 0; j < columns; j++)
            total[j] += x[row * columns + j];
}

/* pool[(start + r)][j] = x[r][j] */
KERN_KERNEL(remember_f32, "ptr,ptr,i64,i32") {
    const float *x = KERN_ARG(const float *, 0);
    float *pool = KERN_ARG(float *, 1);
    int64_t start = KERN_ARG(int64_t, 2);
    int32_t columns = KERN_ARG(int32_t, 3);
    for (uint32_t row = 0; row < launch->grid.x; row++)
        for (int32_t j = 0; j < columns; j++)
            pool[(start + row) * columns + j] = x[row * columns + j];
}

/* out[j] = sum of pool[0 … length)[j] */
KERN_KERNEL(recall_f32, "ptr,ptr,i64,i32") {
    float *out = KERN_ARG(float *, 0);
    const float *pool = KERN_ARG(const float *, 1);
    int64_t length = KERN_ARG(int64_t, 2);
    int32_t columns = KERN_ARG(int32_t, 3);
    for (int32_t j = 0; j < columns; j++) {
        out[j] = 0;
        for (int64_t row = 0; row < length; row++)
            out[j] += pool[row * columns + j];
    }
}

/* part[r] = sum of x[r]; then out[0] = sum of part, and calls[0] counts the calls */
KERN_KERNEL(row_sums_f32, "ptr,ptr,i32") {
    float *part = KERN_ARG(float *, 0);
    const float *x = KERN_ARG(const float *, 1);
    int32_t columns = KERN_ARG(int32_t, 2);
    for (uint32_t row = 0; row < launch->grid.x; row++) {
        part[row] = 0;
        for (int32_t j = 0; j < columns; j++)
            part[row] += x[row * columns + j];
    }
}

KERN_KERNEL(total_f32, "ptr,ptr,ptr,ptr,i32") {
    float *out = KERN_ARG(float *, 0);
    int32_t *count = KERN_ARG(int32_t *, 1);
    const float *part = KERN_ARG(const float *, 2);
    int32_t *calls = KERN_ARG(int32_t *, 3);
    int32_t rows = KERN_ARG(int32_t, 4);
    out[0] = 0;
    for (int32_t row = 0; row < rows; row++)
        out[0] += part[row];
    count[0] = ++calls[0];
}

/* The scalars as they arrived, then the launch's own numbers. */
KERN_KERNEL(scalars, "ptr,u8,i64,i32,u8,u32,f32") {
    int64_t *out = KERN_ARG(int64_t *, 0);
    float f = KERN_ARG(float, 6);
    out[0] = KERN_ARG(uint8_t, 1);
    out[1] = KERN_ARG(int64_t, 2);
    out[2] = KERN_ARG(int32_t, 3);
    out[3] = KERN_ARG(uint8_t, 4);
    out[4] = KERN_ARG(uint32_t, 5);
    out[5] = (int64_t)(f * 1000);
    out[6] = launch->grid.x * 100 + launch->grid.y * 10 + launch->grid.z;
    out[7] = launch->shared_mem;
}

/* All of out from all of a and b: out[i] = a[i mod n_a] * 31 + b[i mod n_b] * 17 + constant + i */
KERN_KERNEL(mix_u32, "ptr,ptr,ptr,u32,i32,i32,i32") {
    uint32_t *out = KERN_ARG(uint32_t *, 0);
    const uint32_t *a = KERN_ARG(const uint32_t *, 1), *b = KERN_ARG(const uint32_t *, 2);
    uint32_t constant = KERN_ARG(uint32_t, 3);
    int32_t n = KERN_ARG(int32_t, 4), n_a = KERN_ARG(int32_t, 5), n_b = KERN_ARG(int32_t, 6);
    for (int32_t i = 0; i < n; i++)
        out[i] = a[i % n_a] * 31u + b[i % n_b] * 17u + constant + (uint32_t)i;
}

/* x[i] = x[i] * 13 + a[i mod n_a] + constant */
KERN_KERNEL(mix_into_u32, "ptr,ptr,u32,i32,i32") {
    uint32_t *x = KERN_ARG(uint32_t *, 0);
    const uint32_t *a = KERN_ARG(const uint32_t *, 1);
    uint32_t constant = KERN_ARG(uint32_t, 2);
    int32_t n = KERN_ARG(int32_t, 3), n_a = KERN_ARG(int32_t, 4);
    for (int32_t i = 0; i < n; i++)
        x[i] = x[i] * 13u + a[i % n_a] + constant;
}

KERN_KERNEL(copy_bytes, "ptr,ptr,i32") {
    unsigned char *out = KERN_ARG(unsigned char *, 0);
    const unsigned char *in = KERN_ARG(const unsigned char *, 1);
    int32_t n = KERN_ARG(int32_t, 2);
    for (int32_t i = 0; i < n; i++)
        out[i] = in[i];
}
