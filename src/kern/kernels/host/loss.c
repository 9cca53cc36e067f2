/* The negative log-likelihood of given targets. */
#include "vector.h"

static void token_nll_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    float *nll = KERN_ARG(float *, 0);
    const float *logits = KERN_ARG(const float *, 1);
    const int64_t *targets = KERN_ARG(const int64_t *, 2);
    int64_t n = KERN_ARG(int32_t, 3);
    (void)launch;
    for (int64_t t = begin; t < end; t++) {
        const float *row = logits + t * n;
        if (targets[t] < 0 || targets[t] >= n) {
            nll[t] = NAN;
            continue;
        }
        float top = largest_among(row, n);
        double sum = 0.0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += (double)fast_exp(row[i] - top);
        nll[t] = (float)(log(sum) + (double)top - (double)row[targets[t]]);
    }
}

/* nll[t] = log(sum(exp(logits[t]))) - logits[t, targets[t]]; NaN for a NaN or +infinity in the row, for nothing but
 * -infinity, and for a target outside the row. */
KERN_KERNEL(token_nll, "ptr,ptr,ptr,i32") {
    int64_t tokens = launch->grid.x;
    for_rows(launch, params, tokens, 1, tokens * KERN_ARG(int32_t, 3), token_nll_rows);
}
