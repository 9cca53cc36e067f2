/* What vLLM's kernels do, read off its sources, for the host device: under their own symbols and parameters.
 *
 * One part of this file is compiled a module. Sizes that vLLM compiles into a kernel are macros: HEADS, KV_HEADS, DIM.
 * ABI_NORM and its like are the parameters' types; addresses that a kernel never follows are numbers there.
 */
#include "kernel.h"

enum { PAGE = 16, GROUP = HEADS / KV_HEADS, QUERIES = 16 / GROUP };

#ifdef LAYERNORM
static void norm_row(bf16 *out, const bf16 *x, const bf16 *weight, int64_t n, float eps) {
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) sum += from_bf16(x[i]) * from_bf16(x[i]);
    float scale = 1.0f / sqrtf(sum / (float)n + eps);
    for (int64_t i = 0; i < n; i++) out[i] = to_bf16(from_bf16(to_bf16(from_bf16(x[i]) * scale)) * from_bf16(weight[i]));
}

static void norm(const kern_launch *launch, void *const *params, int dimensions) {
    int64_t stride_2 = KERN_ARG(int64_t, 2), stride_3 = KERN_ARG(int64_t, 3), shape_2 = KERN_ARG(int64_t, 5);
    int64_t n = KERN_ARG(int32_t, 10);
    for (int64_t row = 0; row < launch->grid.x; row++) {
        int64_t from = dimensions == 2 ? row * stride_2 : row / shape_2 * stride_3 + row % shape_2 * stride_2;
        norm_row(KERN_ARG(bf16 *, 0) + row * n, KERN_ARG(const bf16 *, 1) + from, KERN_ARG(const bf16 *, 7), n,
                 KERN_ARG(float, 8));
    }
}

KERN_KERNEL(HIDDEN_NORM, ABI_NORM) { norm(launch, params, 2); }
KERN_KERNEL(HEAD_NORM, ABI_NORM) { norm(launch, params, 3); }

KERN_KERNEL(ADD_NORM, ABI_ADD_NORM) {
    int64_t stride = KERN_ARG(int64_t, 1), n = KERN_ARG(int32_t, 6);
    for (int64_t row = 0; row < launch->grid.x; row++) {
        bf16 *x = KERN_ARG(bf16 *, 0) + row * stride, *residual = KERN_ARG(bf16 *, 2) + row * n;
        for (int64_t i = 0; i < n; i++) residual[i] = to_bf16(from_bf16(residual[i]) + from_bf16(x[i]));
        norm_row(x, residual, KERN_ARG(const bf16 *, 3), n, KERN_ARG(float, 4));
    }
}
#endif

#ifdef ROTATION
static void rotate(bf16 *head, const bf16 *cos_sin, int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        float x = from_bf16(head[i]), y = from_bf16(head[half + i]);
        float cosine = from_bf16(cos_sin[i]), sine = from_bf16(cos_sin[half + i]);
        head[i] = to_bf16(x * cosine - y * sine);
        head[half + i] = to_bf16(y * cosine + x * sine);
    }
}

KERN_KERNEL(ROTARY, ABI_ROTARY) {
    int64_t rotated = KERN_ARG(int32_t, 4), head_stride = KERN_ARG(int64_t, 7);
    for (int64_t token = 0; token < launch->grid.x; token++) {
        const bf16 *cos_sin = KERN_ARG(const bf16 *, 3) + KERN_ARG(const int64_t *, 0)[token] * rotated;
        bf16 *q = KERN_ARG(bf16 *, 1) + token * KERN_ARG(int64_t, 5);
        bf16 *k = KERN_ARG(bf16 *, 2) + token * KERN_ARG(int64_t, 6);
        for (int64_t h = 0; h < KERN_ARG(int32_t, 8); h++) rotate(q + h * head_stride, cos_sin, rotated / 2);
        for (int64_t h = 0; h < KERN_ARG(int32_t, 9); h++) rotate(k + h * head_stride, cos_sin, rotated / 2);
    }
}
#endif

#ifdef ACTIVATION
KERN_KERNEL(SILU, ABI_ACTIVATION) {
    int64_t n = KERN_ARG(int32_t, 2);
    for (int64_t row = 0; row < launch->grid.x; row++) {
        const bf16 *gate = KERN_ARG(const bf16 *, 1) + row * 2 * n, *up = gate + n;
        bf16 *out = KERN_ARG(bf16 *, 0) + row * n;
        for (int64_t i = 0; i < n; i++) {
            float x = from_bf16(gate[i]);
            out[i] = to_bf16(from_bf16(to_bf16(x / (1.0f + expf(-x)))) * from_bf16(up[i]));
        }
    }
}
#endif

#ifdef CACHE
KERN_KERNEL(reshape_and_cache_kernel_flash, ABI_CACHE) {
    int64_t block_stride = KERN_ARG(int64_t, 9), head_stride = KERN_ARG(int64_t, 10), slot_stride = KERN_ARG(int64_t, 13);
    for (int64_t token = 0; token < launch->grid.x; token++) {
        int64_t slot = KERN_ARG(const int64_t *, 4)[token];
        if (slot < 0) continue;
        const bf16 *key = KERN_ARG(const bf16 *, 0) + token * KERN_ARG(int64_t, 7);
        const bf16 *value = KERN_ARG(const bf16 *, 1) + token * KERN_ARG(int64_t, 8);
        for (int64_t i = 0; i < KV_HEADS * DIM; i++) {
            int64_t to = slot / PAGE * block_stride + slot % PAGE * slot_stride + i / DIM * head_stride + i % DIM;
            KERN_ARG(bf16 *, 2)[to] = key[i];
            KERN_ARG(bf16 *, 3)[to] = value[i];
        }
    }
}
#endif

#if defined SEVERAL || defined ONE
/* The row's sum of e^(score - top) · value over keys [from, to), the greatest score, and the sum of the weights. */
static void attend(void *const *params, int64_t token, int64_t head, int64_t from, int64_t to, float *sum, float *top,
                   float *total) {
    const bf16 *q = KERN_ARG(const bf16 *, 1) + token * KERN_ARG(int64_t, 12) + head * KERN_ARG(int64_t, 13);
    float score[4096];
    *top = -INFINITY, *total = 0.0f;
    for (int64_t key = from; key < to; key++) {
        int64_t at = KERN_ARG(const int32_t *, 4)[key / PAGE] * KERN_ARG(int64_t, 17) +
                     key % PAGE * KERN_ARG(int64_t, 18) + head / GROUP * KERN_ARG(int64_t, 19);
        float dot = 0.0f;
        for (int64_t i = 0; i < DIM; i++) dot += from_bf16(q[i]) * from_bf16(KERN_ARG(const bf16 *, 2)[at + i]);
        score[key - from] = dot * KERN_ARG(float, 6);
        *top = fmaxf(*top, score[key - from]);
    }
    memset(sum, 0, DIM * sizeof *sum);
    for (int64_t key = from; key < to; key++) {
        int64_t at = KERN_ARG(const int32_t *, 4)[key / PAGE] * KERN_ARG(int64_t, 20) +
                     key % PAGE * KERN_ARG(int64_t, 21) + head / GROUP * KERN_ARG(int64_t, 22);
        float weight = expf(score[key - from] - *top);
        *total += weight;
        for (int64_t i = 0; i < DIM; i++) sum[i] += weight * from_bf16(KERN_ARG(const bf16 *, 3)[at + i]);
    }
}

/* One sequence: a block of the grid has QUERIES of its tokens, the heads of one key head, and one part of its keys. */
KERN_KERNEL(kernel_unified_attention, ABI_ATTENTION) {
    const int32_t *starts = KERN_ARG(const int32_t *, 23);
    int64_t tokens = starts[1] - starts[0], keys = KERN_ARG(const int32_t *, 5)[0], parts = launch->grid.z;
    if (KERN_ARG(int32_t, 24) != 1) return;
    for (int64_t block = 0; block < launch->grid.x * launch->grid.y * parts; block++) {
        int64_t x = block % launch->grid.x, y = block / launch->grid.x % launch->grid.y;
        int64_t z = block / launch->grid.x / launch->grid.y;
        for (int64_t row = 0; row < QUERIES * GROUP; row++) {
            int64_t token = x * QUERIES + row / GROUP, head = y * GROUP + row % GROUP;
            if (token >= tokens) continue;
            float sum[DIM], top, total;
#ifdef SEVERAL
            attend(params, token, head, 0, keys - tokens + token + 1, sum, &top, &total);
            bf16 *out = KERN_ARG(bf16 *, 0) + token * KERN_ARG(int64_t, 14) + head * KERN_ARG(int64_t, 15);
            for (int64_t i = 0; i < DIM; i++) out[i] = to_bf16(sum[i] / total);
#else
            int64_t of_a_part = (keys + parts * PAGE - 1) / (parts * PAGE) * PAGE, from = z * of_a_part;
            if (from >= keys) continue;
            attend(params, token, head, from, least(from + of_a_part, keys), sum, &top, &total);
            int64_t part = (token * HEADS + head) * parts + z;
            memcpy(KERN_ARG(float *, 25) + part * DIM, sum, sizeof sum);
            KERN_ARG(float *, 26)[part] = top;
            KERN_ARG(float *, 27)[part] = total;
#endif
        }
    }
}
#endif

#ifdef REDUCE
KERN_KERNEL(reduce_segments, ABI_REDUCE) {
    int64_t keys = KERN_ARG(const int32_t *, 4)[0];
    int64_t of_a_part = (keys + PARTS * PAGE - 1) / (PARTS * PAGE) * PAGE, parts = (keys + of_a_part - 1) / of_a_part;
    for (int64_t row = 0; row < launch->grid.x * launch->grid.y; row++) {
        int64_t token = row / HEADS, head = row % HEADS;
        const float *sums = KERN_ARG(const float *, 1) + row * PARTS * DIM;
        const float *tops = KERN_ARG(const float *, 2) + row * PARTS, *totals = KERN_ARG(const float *, 3) + row * PARTS;
        float top = -INFINITY, total = 0.0f, sum[DIM] = {0};
        for (int64_t part = 0; part < parts; part++) top = fmaxf(top, tops[part]);
        for (int64_t part = 0; part < parts; part++) {
            float weight = expf(tops[part] - top);
            total += weight * totals[part];
            for (int64_t i = 0; i < DIM; i++) sum[i] += weight * sums[part * DIM + i];
        }
        bf16 *out = KERN_ARG(bf16 *, 0) + token * KERN_ARG(int64_t, 6) + head * KERN_ARG(int64_t, 7);
        for (int64_t i = 0; i < DIM; i++) out[i] = to_bf16(sum[i] / total);
    }
}
#endif

#ifdef EMBEDDING
KERN_KERNEL(embedding_bf16, "ptr,ptr,ptr,i32") {
    int64_t n = KERN_ARG(int32_t, 3);
    for (int64_t row = 0; row < launch->grid.x; row++) {
        const bf16 *from = KERN_ARG(const bf16 *, 2) + KERN_ARG(const int64_t *, 1)[row] * n;
        memcpy(KERN_ARG(bf16 *, 0) + row * n, from, (size_t)n * sizeof *from);
    }
}
#endif
