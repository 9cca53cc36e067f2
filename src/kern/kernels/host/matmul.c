/* C[m, n] = A[m, k] * W[n, k]^T over bf16 with f32 sums: few rows stream the weights, more go through packed
 * blocks. */
#include "stream.h"

enum {
    STREAM_MOST = 32,      /* rows of A that stream the weights; packing them costs fewer rows more than it saves */
    STREAM_DEPTH = 10240,  /* elements of A between two visits to a row of W: they fit the first cache */
    STREAM_WHOLE = 65536,  /* elements of A that are laid out once for all of W */
    BLOCK_ROWS = 256,      /* of A */
    BLOCK_COLS = 256,      /* rows of W */
    BLOCK_DEPTH = 320,     /* elements of k, at most: a panel of W then fits the first cache */
    A_STRIDE = BLOCK_DEPTH + 16, /* the padding spreads the rows over the cache's sets */
    C_STRIDE = BLOCK_COLS + 16,
};

typedef struct {
    void *c;
    const bf16 *a, *w;
    int64_t m, n, k;
    int wide, add; /* C is f32; what is there is added to */
} product;

static product product_of(void *const *params, int wide, int add) {
    return (product){KERN_ARG(void *, 0),  KERN_ARG(const bf16 *, 1), KERN_ARG(const bf16 *, 2),
                     KERN_ARG(int32_t, 3), KERN_ARG(int32_t, 4),      KERN_ARG(int32_t, 5),
                     wide,                 add};
}

/* The share when `total` is cut into as few equal ones of at most `most` as there can be. It is a multiple of
 * TILE_COLS, as `most` is. */
static int64_t even_share(int64_t total, int64_t most) {
    int64_t shares = (total + most - 1) / most, share = (total + shares - 1) / shares;
    return (share + TILE_COLS - 1) / TILE_COLS * TILE_COLS;
}

static void store_block(const product *p, const float *c, int64_t stride, int64_t m0, int64_t rows, int64_t n0,
                        int64_t cols) {
    for (int64_t r = 0; r < rows; r++) {
        const float *from = c + r * stride;
        int64_t at = (m0 + r) * p->n + n0, i = 0;
        if (p->add) {
            for (; i < cols; i++) ((float *)p->c)[at + i] += from[i];
            continue;
        }
        if (p->wide) {
            memcpy((float *)p->c + at, from, (size_t)cols * sizeof(float));
            continue;
        }
        for (; i + LANES <= cols; i += LANES) store_bf16((bf16 *)p->c + at + i, load(from + i));
        for (; i < cols; i++) ((bf16 *)p->c)[at + i] = to_bf16(from[i]);
    }
}

/* Columns begin ... end - 1 of C, A taken in blocks of `rows` rows. */
ALWAYS_INLINE void stream_columns(const int rows, const product *p, int64_t begin, int64_t end) {
    _Alignas(64) float x[STREAM_WHOLE], out[STREAM_MOST * STREAM_COLS];
    vec sums[STREAM_MOST * STREAM_COLS];
    int64_t blocks = (p->m + rows - 1) / rows, padded = blocks * rows, share = even_share(p->k, STREAM_DEPTH / padded);
    int whole = p->k + share <= STREAM_WHOLE / padded;
    memset(sums, 0, (size_t)padded * STREAM_COLS * sizeof(vec));
    for (int64_t n0 = begin; n0 < end; n0 += STREAM_COLS) {
        int64_t cols = least(STREAM_COLS, end - n0);
        for (int64_t k0 = 0; k0 < p->k; k0 += share) {
            int64_t depth = least(share, p->k - k0), stride = rows * share;
            float *part = whole ? x + k0 * padded : x;
            for (int64_t b = 0; b < blocks && (n0 == begin || !whole); b++)
                lay_rows(part + b * stride, rows, p->m - b * rows, p->a + b * rows * p->k + k0, p->k, depth);
            stream_group(rows, sums, p->w + n0 * p->k + k0, cols, p->k, part, blocks, stride, depth, k0 > 0);
        }
        for (int64_t at = 0; at < p->m * STREAM_COLS; at += LANES) store(out + at, sums_of(sums + at));
        store_block(p, out, STREAM_COLS, 0, p->m, n0, cols);
    }
}

static void stream(const product *p, int64_t begin, int64_t end) {
    if (p->m == 1)
        stream_columns(1, p, begin, end);
    else if (p->m == 2)
        stream_columns(2, p, begin, end);
    else
        stream_columns(STREAM_ROWS, p, begin, end);
}

/* One block of C, whole depth. */
static void multiply_block(const product *p, int64_t m0, int64_t rows, int64_t n0, int64_t cols) {
    _Alignas(64) float a[BLOCK_ROWS * A_STRIDE], w[BLOCK_DEPTH * TILE_COLS], c[BLOCK_ROWS * C_STRIDE];
    int64_t block_depth = even_share(p->k, BLOCK_DEPTH);
    for (int64_t k0 = 0; k0 < p->k; k0 += block_depth) {
        int64_t depth = least(block_depth, p->k - k0);
        for (int64_t r = 0; r < rows; r++)
            unpack_row(a + r * A_STRIDE, p->a + (m0 + r) * p->k + k0, depth, depth);
        for (int64_t col = 0; col < cols; col += TILE_COLS) {
            const bf16 *from = p->w + (n0 + col) * p->k + k0;
            pack_transposed(w, TILE_COLS, from, p->k, cols - col, depth);
            pack_transposed(w + LANES, TILE_COLS, from + LANES * p->k, p->k, cols - col - LANES, depth);
            tile_product(rows, c + col, C_STRIDE, a, A_STRIDE, w, TILE_COLS, depth, k0 > 0);
        }
    }
    store_block(p, c, C_STRIDE, m0, rows, n0, cols);
}

/* Columns of C rounded up to whole panels of W. */
static int64_t padded_columns(const product *p) { return (p->n + TILE_COLS - 1) / TILE_COLS * TILE_COLS; }

/* The padded columns begin ... end - 1, counted on from each block of rows into the next. */
static void multiply_columns(const product *p, int64_t begin, int64_t end) {
    int64_t width = padded_columns(p), block_rows = even_share(p->m, BLOCK_ROWS);
    while (begin < end) {
        int64_t m0 = begin / width * block_rows, n0 = begin % width;
        int64_t cols = least(BLOCK_COLS, least(width - n0, end - begin));
        multiply_block(p, m0, least(block_rows, p->m - m0), n0, least(cols, p->n - n0));
        begin += cols;
    }
}

static void multiply(const product *p, int64_t begin, int64_t end) {
    if (p->m <= STREAM_MOST)
        stream(p, begin, end);
    else
        multiply_columns(p, begin, end);
}

static void matmul_columns(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    product p = product_of(params, 0, 0);
    (void)launch;
    multiply(&p, begin, end);
}

static void matmul_f32_columns(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    product p = product_of(params, 1, 0);
    (void)launch;
    multiply(&p, begin, end);
}

static void matmul_acc_f32_columns(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    product p = product_of(params, 1, 1);
    (void)launch;
    multiply(&p, begin, end);
}

static void launch_product(const kern_launch *launch, void *const *params, rows_body body) {
    product p = product_of(params, 0, 0);
    int64_t work = p.m * p.n * p.k, block_rows = even_share(p.m, BLOCK_ROWS);
    if (p.m <= STREAM_MOST)
        for_rows(launch, params, p.n, STREAM_UNIT, work, body);
    else
        for_rows(launch, params, (p.m + block_rows - 1) / block_rows * padded_columns(&p), TILE_COLS, work, body);
}

KERN_KERNEL(matmul, "ptr,ptr,ptr,i32,i32,i32") { launch_product(launch, params, matmul_columns); }

KERN_KERNEL(matmul_f32, "ptr,ptr,ptr,i32,i32,i32") { launch_product(launch, params, matmul_f32_columns); }

KERN_KERNEL(matmul_acc_f32, "ptr,ptr,ptr,i32,i32,i32") { launch_product(launch, params, matmul_acc_f32_columns); }
