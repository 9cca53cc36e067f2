/* The gated activation between the two halves of a feed-forward layer. */
#include "kernel.h"

static void silu_mul_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    bf16 *y = KERN_ARG(bf16 *, 0);
    const bf16 *gate_up = KERN_ARG(const bf16 *, 1);
    int64_t width = KERN_ARG(int32_t, 2);
    (void)launch;
    for (int64_t t = begin; t < end; t++) {
        bf16 *restrict out = y + t * width;
        const bf16 *restrict gate = gate_up + t * 2 * width, *restrict up = gate + width;
        for (int64_t i = 0; i < width; i++) {
            float g = from_bf16(gate[i]);
            out[i] = to_bf16(g / (1.0f + fast_exp(-g)) * from_bf16(up[i]));
        }
    }
}

/* y = gate * sigmoid(gate) * up, the gate being the first half of each row. */
KERN_KERNEL(silu_mul, "ptr,ptr,i32") {
    int64_t tokens = launch->grid.x;
    for_rows(launch, params, tokens, 1, tokens * KERN_ARG(int32_t, 2) * 4, silu_mul_rows);
}
