/* Rows of a table: of the embedding as the f32 residual stream, of others as they are; rows of a call; the stream
 * rounded to bf16. */
#include "kernel.h"

static void embedding_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    float *x = KERN_ARG(float *, 0);
    const int64_t *ids = KERN_ARG(const int64_t *, 1);
    const bf16 *table = KERN_ARG(const bf16 *, 2);
    int64_t hidden = KERN_ARG(int32_t, 3);
    (void)launch;
    for (int64_t t = begin; t < end; t++) {
        const bf16 *row = table + row_of(ids[t]) * hidden;
        float *out = x + t * hidden;
        for (int64_t i = 0; i < hidden; i++) out[i] = from_bf16(row[i]);
    }
}

/* x[t] = table[ids[t]]; row 0 for an id below 0 */
KERN_KERNEL(embedding, "ptr,ptr,ptr,i32") {
    int64_t tokens = launch->grid.x;
    for_rows(launch, params, tokens, 1, tokens * KERN_ARG(int32_t, 3), embedding_rows);
}

static void looked_up_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    bf16 *y = KERN_ARG(bf16 *, 0);
    const int64_t *ids = KERN_ARG(const int64_t *, 1);
    const bf16 *table = KERN_ARG(const bf16 *, 2);
    int64_t width = KERN_ARG(int32_t, 3), stride = KERN_ARG(int32_t, 4);
    (void)launch;
    for (int64_t s = begin; s < end; s++)
        memcpy(y + s * width, table + row_of(ids[s * stride]) * width, (size_t)width * sizeof(bf16));
}

/* y[s] = table[ids[s * stride]]; row 0 for an id below 0 */
KERN_KERNEL(gather_bf16, "ptr,ptr,ptr,i32,i32") {
    int64_t seqs = launch->grid.x;
    for_rows(launch, params, seqs, 1, seqs * KERN_ARG(int32_t, 3), looked_up_rows);
}

static void gathered_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    bf16 *y = KERN_ARG(bf16 *, 0);
    const bf16 *x = KERN_ARG(const bf16 *, 1);
    const int64_t *rows = KERN_ARG(const int64_t *, 2);
    int64_t width = KERN_ARG(int32_t, 3);
    size_t bytes = (size_t)width * sizeof(bf16);
    (void)launch;
    for (int64_t s = begin; s < end; s++) {
        if (rows[s] < 0)
            memset(y + s * width, 0, bytes);
        else
            memcpy(y + s * width, x + rows[s] * width, bytes);
    }
}

/* y[s] = x[rows[s]]; zeros for a row below 0 */
KERN_KERNEL(gather_rows, "ptr,ptr,ptr,i32") {
    int64_t seqs = launch->grid.x;
    for_rows(launch, params, seqs, 1, seqs * KERN_ARG(int32_t, 3), gathered_rows);
}

static void rounded_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    bf16 *y = KERN_ARG(bf16 *, 0);
    const float *x = KERN_ARG(const float *, 1);
    int64_t width = KERN_ARG(int32_t, 2);
    (void)launch;
    for (int64_t i = begin * width; i < end * width; i++) y[i] = to_bf16(x[i]);
}

/* y = x, rounded */
KERN_KERNEL(round_bf16, "ptr,ptr,i32") {
    int64_t tokens = launch->grid.x;
    for_rows(launch, params, tokens, 1, tokens * KERN_ARG(int32_t, 2), rounded_rows);
}
