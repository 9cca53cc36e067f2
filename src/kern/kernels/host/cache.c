/* Writing keys and values into their slots of the paged pool. */
#include "kernel.h"
#include "pages.h"

static void cache_write_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    const bf16 *k = KERN_ARG(const bf16 *, 0), *v = KERN_ARG(const bf16 *, 1);
    bf16 *pool = KERN_ARG(bf16 *, 2);
    const int64_t *slots = KERN_ARG(const int64_t *, 3);
    pool_shape shape = {KERN_ARG(int32_t, 4), KERN_ARG(int32_t, 5), KERN_ARG(int64_t, 7)};
    int64_t row_stride = KERN_ARG(int32_t, 6);
    size_t bytes = (size_t)shape.dim * sizeof(bf16);
    (void)launch;
    for (int64_t t = begin; t < end; t++) {
        if (slots[t] < 0) continue;
        for (int64_t h = 0; h < shape.kv_heads; h++) {
            bf16 *key = pool + key_at(&shape, slots[t] / PAGE, h, slots[t] % PAGE);
            memcpy(key, k + t * row_stride + h * shape.dim, bytes);
            memcpy(key + value_offset(&shape), v + t * row_stride + h * shape.dim, bytes);
        }
    }
}

/* Token t's heads go to slot slots[t]; a negative slot is skipped. */
KERN_KERNEL(cache_write, "ptr,ptr,ptr,ptr,i32,i32,i32,i64") {
    int64_t tokens = launch->grid.x, row = (int64_t)KERN_ARG(int32_t, 4) * KERN_ARG(int32_t, 5);
    for_rows(launch, params, tokens, 1, tokens * row * 2, cache_write_rows);
}
