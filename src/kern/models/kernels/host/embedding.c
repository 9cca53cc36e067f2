/* Rows of the embedding table, as the f32 residual stream. */
#include "kernel.h"

static void embedding_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    float *x = KERN_ARG(float *, 0);
    const int64_t *ids = KERN_ARG(const int64_t *, 1);
    const bf16 *table = KERN_ARG(const bf16 *, 2);
    int64_t hidden = KERN_ARG(int32_t, 3);
    (void)launch;
    for (int64_t t = begin; t < end; t++) {
        const bf16 *row = table + ids[t] * hidden;
        float *out = x + t * hidden;
        for (int64_t i = 0; i < hidden; i++) out[i] = from_bf16(row[i]);
    }
}

/* x[t] = table[ids[t]] */
KERN_KERNEL(embedding, "ptr,ptr,ptr,i32") {
    int64_t tokens = launch->grid.x;
    for_rows(launch, params, tokens, 1, tokens * KERN_ARG(int32_t, 3), embedding_rows);
}
