/* Root-mean-square norms: of a row, of a row after adding to it, of each head. Sums in f32. */
#include "kernel.h"

static float inverse_rms(float sum_of_squares, int64_t n, float eps) {
    return 1.0f / sqrtf(sum_of_squares / (float)n + eps);
}

static void norm_row(bf16 *restrict y, const float *restrict x, const bf16 *restrict weight, int64_t n,
                     float eps) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    float scale = inverse_rms(sum, n, eps);
    for (int64_t i = 0; i < n; i++) y[i] = to_bf16(x[i] * scale * from_bf16(weight[i]));
}

static void rms_norm_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    bf16 *y = KERN_ARG(bf16 *, 0);
    const float *x = KERN_ARG(const float *, 1);
    const bf16 *weight = KERN_ARG(const bf16 *, 2);
    int64_t hidden = KERN_ARG(int32_t, 3);
    float eps = KERN_ARG(float, 4);
    (void)launch;
    for (int64_t t = begin; t < end; t++) norm_row(y + t * hidden, x + t * hidden, weight, hidden, eps);
}

/* y = x / sqrt(mean(x^2) + eps) * weight */
KERN_KERNEL(rms_norm, "ptr,ptr,ptr,i32,f32") {
    int64_t tokens = launch->grid.x;
    for_rows(launch, params, tokens, 1, tokens * KERN_ARG(int32_t, 3), rms_norm_rows);
}

static void add_rms_norm_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    bf16 *y = KERN_ARG(bf16 *, 0);
    float *x = KERN_ARG(float *, 1);
    const bf16 *delta = KERN_ARG(const bf16 *, 2);
    const bf16 *weight = KERN_ARG(const bf16 *, 3);
    int64_t hidden = KERN_ARG(int32_t, 4);
    float eps = KERN_ARG(float, 5);
    (void)launch;
    for (int64_t t = begin; t < end; t++) {
        float *restrict row = x + t * hidden;
        const bf16 *restrict added = delta + t * hidden;
        for (int64_t i = 0; i < hidden; i++) row[i] += from_bf16(added[i]);
        norm_row(y + t * hidden, row, weight, hidden, eps);
    }
}

/* x += delta; y = x / sqrt(mean(x^2) + eps) * weight */
KERN_KERNEL(add_rms_norm, "ptr,ptr,ptr,ptr,i32,f32") {
    int64_t tokens = launch->grid.x;
    for_rows(launch, params, tokens, 1, tokens * KERN_ARG(int32_t, 4), add_rms_norm_rows);
}

static void head_norm_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    bf16 *heads = KERN_ARG(bf16 *, 0);
    const bf16 *weight = KERN_ARG(const bf16 *, 1);
    int64_t dim = KERN_ARG(int32_t, 2), row_stride = KERN_ARG(int32_t, 3);
    float eps = KERN_ARG(float, 4);
    for (int64_t t = begin; t < end; t++) {
        for (int64_t h = 0; h < launch->grid.y; h++) {
            bf16 *head = heads + t * row_stride + h * dim;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < dim; i++) sum += from_bf16(head[i]) * from_bf16(head[i]);
            float scale = inverse_rms(sum, dim, eps);
            for (int64_t i = 0; i < dim; i++)
                head[i] = to_bf16(from_bf16(head[i]) * scale * from_bf16(weight[i]));
        }
    }
}

/* Each of a row's grid.y heads, normed in place over its own `dim` elements. */
KERN_KERNEL(head_norm, "ptr,ptr,i32,i32,f32") {
    int64_t tokens = launch->grid.x;
    for_rows(launch, params, tokens, 1, tokens * launch->grid.y * KERN_ARG(int32_t, 2), head_norm_rows);
}
