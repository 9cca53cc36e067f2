/* Rotary position embedding, halves rotated against each other (GPT-NeoX's pairing). */
#include "kernel.h"

static void rope_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    bf16 *qkv = KERN_ARG(bf16 *, 0);
    const int64_t *positions = KERN_ARG(const int64_t *, 1);
    const float *table = KERN_ARG(const float *, 2);
    int64_t dim = KERN_ARG(int32_t, 3), row_stride = KERN_ARG(int32_t, 4), half = dim / 2;
    for (int64_t t = begin; t < end; t++) {
        const float *restrict cosine = table + positions[t] * dim, *restrict sine = cosine + half;
        for (int64_t h = 0; h < launch->grid.y; h++) {
            bf16 *restrict low = qkv + t * row_stride + h * dim, *restrict high = low + half;
            for (int64_t i = 0; i < half; i++) {
                float a = from_bf16(low[i]), b = from_bf16(high[i]);
                low[i] = to_bf16(a * cosine[i] - b * sine[i]);
                high[i] = to_bf16(b * cosine[i] + a * sine[i]);
            }
        }
    }
}

/* The first grid.y heads of each row, rotated in place by the angles of the row's position. */
KERN_KERNEL(rope, "ptr,ptr,ptr,i32,i32") {
    int64_t tokens = launch->grid.x;
    for_rows(launch, params, tokens, 1, tokens * launch->grid.y * KERN_ARG(int32_t, 3), rope_rows);
}
