/* An RMS norm in plain C: one row after the other, summed in double precision. */
#include <math.h>
#include <string.h>

#include "kern_host.h"

static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static float from_bf16(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* y, x, weight, eps, width: eps before width, unlike the kernel that it replaces. */
KERN_KERNEL(plain_norm, "ptr,ptr,ptr,f32,i32") {
    uint16_t *y = KERN_ARG(uint16_t *, 0);
    const float *x = KERN_ARG(const float *, 1);
    const uint16_t *weight = KERN_ARG(const uint16_t *, 2);
    float eps = KERN_ARG(float, 3);
    int32_t width = KERN_ARG(int32_t, 4);
    for (uint32_t row = 0; row < launch->grid.x; row++, x += width, y += width) {
        double squares = 0;
        for (int32_t i = 0; i < width; i++) squares += (double)x[i] * x[i];
        float scale = (float)(1.0 / sqrt(squares / width + eps));
        for (int32_t i = 0; i < width; i++) y[i] = to_bf16(x[i] * scale * from_bf16(weight[i]));
    }
}
