/* The greatest of a row in two steps: of each of grid.x parts, then of the parts. Ties go to the lowest index;
 * a NaN wins only over other NaNs. */
#include "vector.h"

/* Whether `value` displaces `best`, which stands at a lower index. */
static inline int displaces(float value, float best) {
    return value > best || (best != best && value == value);
}

static void argmax_partial_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    float *best = KERN_ARG(float *, 0);
    int32_t *index = KERN_ARG(int32_t *, 1);
    const float *values = KERN_ARG(const float *, 2);
    int64_t n = KERN_ARG(int32_t, 3), parts = launch->grid.x;
    for (int64_t part = begin; part < end; part++) {
        const float *row = values + part / parts * n;
        int64_t first = n * (part % parts) / parts, last = n * (part % parts + 1) / parts;
        float top = largest_among(row + first, last - first);
        int64_t at = first;
        while (at < last && row[at] != top) at++;
        if (at == last) { /* nothing but NaNs, or nothing at all */
            top = NAN;
            at = first < n ? first : n - 1;
        }
        best[part] = top;
        index[part] = (int32_t)at;
    }
}

/* best[row, part], index[row, part] of values [row, n] */
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
        int64_t top = row * parts;
        for (int64_t i = top + 1; i < (row + 1) * parts; i++)
            if (displaces(best[i], best[top])) top = i;
        next[row] = index[top];
    }
}
