/* The maximum of a row in two steps: of each of grid.x parts, then of the parts. Ties go to the lowest index; -1 where
 * nothing can be chosen: a NaN or +infinity in the row, or nothing but -infinity. */
#include "vector.h"

/* The maximum of part `part` of all parts of all rows, where row r is at values + r * stride. */
static void find_part(const kern_launch *launch, void *const *params, int64_t part, const float *values, int64_t stride,
                      int64_t n) {
    int64_t parts = launch->grid.x, first = n * (part % parts) / parts, last = n * (part % parts + 1) / parts, at = -1;
    const float *row = values + part / parts * stride;
    float top = largest_or_infinity(row + first, last - first);
    if (fabsf(top) < INFINITY)
        for (at = first; row[at] != top;) at++;
    KERN_ARG(float *, 0)[part] = top;
    KERN_ARG(int32_t *, 1)[part] = (int32_t)at;
}

static void argmax_partial_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    int64_t n = KERN_ARG(int32_t, 3);
    for (int64_t part = begin; part < end; part++) find_part(launch, params, part, KERN_ARG(const float *, 2), n, n);
}

/* best[row, part], index[row, part] of values [row, n]; +infinity at -1 for a part that has one, or a NaN */
KERN_KERNEL(argmax_partial, "ptr,ptr,ptr,i32") {
    int64_t rows = launch->grid.y, parts = launch->grid.x;
    for_rows(launch, params, rows * parts, 1, rows * KERN_ARG(int32_t, 3), argmax_partial_rows);
}

static void add_partial_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    float *logits = KERN_ARG(float *, 2);
    const float *delta = KERN_ARG(const float *, 3);
    int64_t n = KERN_ARG(int32_t, 4), stride = (KERN_ARG(int32_t, 5) - 1) * n, parts = launch->grid.x;
    for (int64_t part = begin; part < end; part++) {
        int64_t row = part / parts, first = n * (part % parts) / parts, last = n * (part % parts + 1) / parts;
        for (int64_t i = first; i < last; i++) logits[row * stride + i] += delta[row * n + i];
        find_part(launch, params, part, logits, stride, n);
    }
}

/* The same of logits += delta, where delta is [row, n] and logits [row, rows - 1, n], the first of each */
KERN_KERNEL(add_argmax_partial, "ptr,ptr,ptr,ptr,i32,i32") {
    int64_t rows = launch->grid.y, parts = launch->grid.x;
    for_rows(launch, params, rows * parts, 1, rows * KERN_ARG(int32_t, 4), add_partial_rows);
}

/* next[row * stride] from the parts' best and index */
KERN_KERNEL(argmax_final, "ptr,ptr,ptr,i32,i32") {
    int64_t *next = KERN_ARG(int64_t *, 0);
    const float *best = KERN_ARG(const float *, 1);
    const int32_t *index = KERN_ARG(const int32_t *, 2);
    int64_t parts = KERN_ARG(int32_t, 3), stride = KERN_ARG(int32_t, 4);
    for (int64_t row = 0; row < launch->grid.x; row++) {
        float top = -INFINITY;
        int64_t choice = -1;
        for (int64_t i = row * parts; i < (row + 1) * parts; i++) {
            if (!(best[i] > top)) continue;
            top = best[i];
            choice = index[i];
        }
        next[row * stride] = choice;
    }
}
