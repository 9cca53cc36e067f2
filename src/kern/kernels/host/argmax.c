/* The maximum of a row in two steps: of each of grid.x parts, then of the parts. Ties go to the lowest index; -1 where
 * nothing can be chosen: a NaN or +infinity in the row, or nothing but -infinity. */
#include "vector.h"

static void argmax_partial_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    float *best = KERN_ARG(float *, 0);
    int32_t *index = KERN_ARG(int32_t *, 1);
    const float *values = KERN_ARG(const float *, 2);
    int64_t n = KERN_ARG(int32_t, 3), parts = launch->grid.x;
    for (int64_t part = begin; part < end; part++) {
        const float *row = values + part / parts * n;
        int64_t first = n * (part % parts) / parts, last = n * (part % parts + 1) / parts;
        float top = largest_or_infinity(row + first, last - first);
        int64_t at = -1;
        if (fabsf(top) < INFINITY)
            for (at = first; row[at] != top;) at++;
        best[part] = top;
        index[part] = (int32_t)at;
    }
}

/* best[row, part], index[row, part] of values [row, n]; +infinity at -1 for a part that has one, or a NaN */
KERN_KERNEL(argmax_partial, "ptr,ptr,ptr,i32") {
    int64_t rows = launch->grid.y, parts = launch->grid.x;
    for_rows(launch, params, rows * parts, 1, rows * KERN_ARG(int32_t, 3), argmax_partial_rows);
}

/* next[row] from the parts' best and index */
KERN_KERNEL(argmax_final, "ptr,ptr,ptr,i32") {
    int64_t *next = KERN_ARG(int64_t *, 0);
    const float *best = KERN_ARG(const float *, 1);
    const int32_t *index = KERN_ARG(const int32_t *, 2);
    int64_t parts = KERN_ARG(int32_t, 3);
    for (int64_t row = 0; row < launch->grid.x; row++) {
        float top = -INFINITY;
        next[row] = -1;
        for (int64_t i = row * parts; i < (row + 1) * parts; i++) {
            if (!(best[i] > top)) continue;
            top = best[i];
            next[row] = index[i];
        }
    }
}
