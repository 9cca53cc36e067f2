/* Attention over the paged pool, query heads sharing key heads in groups, softmax computed online (Dao et al.,
 * FlashAttention): prefill in blocks of queries and keys, causal or full, decode one query per sequence. */
#include "pages.h"
#include "tile.h"

enum {
    MAX_DIM = 256,
    KEYS = 64,               /* a block of keys; whole pages */
    QUERIES = 96 / TILE_ROWS * TILE_ROWS,
    Q_STRIDE = MAX_DIM + 16, /* the padding spreads the rows over the cache's sets */
    S_STRIDE = KEYS + 16,
};

typedef struct {
    bf16 *out;
    const bf16 *q, *pool;
    const int32_t *block_table, *seq_lens, *cu_seqlens_q; /* the last is NULL when each sequence has one query */
    int64_t seqs, pages, q_heads, row_stride;
    pool_shape shape;
    float scale;
    int causal; /* a query sees keys up to its own; else all of its sequence */
} attention;

static attention prefill_of(void *const *params, int causal) {
    return (attention){
        KERN_ARG(bf16 *, 0), KERN_ARG(const bf16 *, 1), KERN_ARG(const bf16 *, 2),
        KERN_ARG(const int32_t *, 3), KERN_ARG(const int32_t *, 4), KERN_ARG(const int32_t *, 5),
        KERN_ARG(int32_t, 6), KERN_ARG(int32_t, 7), KERN_ARG(int32_t, 8), KERN_ARG(int32_t, 11),
        {KERN_ARG(int32_t, 9), KERN_ARG(int32_t, 10), KERN_ARG(int64_t, 12)},
        KERN_ARG(float, 13), causal};
}

static attention decode_of(void *const *params) {
    return (attention){
        KERN_ARG(bf16 *, 0), KERN_ARG(const bf16 *, 1), KERN_ARG(const bf16 *, 2),
        KERN_ARG(const int32_t *, 3), KERN_ARG(const int32_t *, 4), NULL,
        KERN_ARG(int32_t, 5), KERN_ARG(int32_t, 6), KERN_ARG(int32_t, 7), KERN_ARG(int32_t, 10),
        {KERN_ARG(int32_t, 8), KERN_ARG(int32_t, 9), KERN_ARG(int64_t, 11)},
        KERN_ARG(float, 12), 1};
}

/* The keys of page `index` of a sequence, for one head: [PAGE, dim]. */
static const bf16 *page_keys(const attention *t, int64_t seq, int64_t index, int64_t head) {
    return t->pool + key_at(&t->shape, t->block_table[seq * t->pages + index], head, 0);
}

/* Turn the first `count` of KEYS scores into weights e^(score - *top), the others into zeros. `top` and `total`
 * follow; the result is the factor for what was summed before. */
static float soften(float *scores, int64_t count, float *top, float *total) {
    vec sum = {0};
    for (int64_t j = count; j < KEYS; j++) scores[j] = -INFINITY;
    float before = *top, now = largest_among(scores, KEYS);
    if (before > now) now = before;
    for (int j = 0; j < KEYS; j++) scores[j] = fast_exp(scores[j] - now);
    for (int j = 0; j < KEYS; j += LANES) sum += load(scores + j);
    float factor = fast_exp(before - now);
    *total = *total * factor + sum_of(sum);
    *top = now;
    return factor;
}

typedef struct {
    _Alignas(64) float q[QUERIES * Q_STRIDE], out[QUERIES * Q_STRIDE], scores[QUERIES * S_STRIDE];
    float keys[MAX_DIM * KEYS], values[KEYS * MAX_DIM]; /* keys [dim, KEYS], values [KEYS, MAX_DIM] */
    float top[QUERIES], total[QUERIES];
    int numbers; /* whether all values are: 0 times one that is not would reach the queries that do not see it */
} block_memory;

static int64_t padded(int64_t dim) { return (dim + TILE_COLS - 1) / TILE_COLS * TILE_COLS; }

static void load_keys_and_values(const attention *t, block_memory *b, int64_t seq, int64_t head, int64_t first,
                                 int64_t count) {
    int64_t dim = t->shape.dim;
    uint16_t largest = 0;
    for (int64_t j = 0; j < KEYS; j += LANES) {
        int64_t rows = count - j < 0 ? 0 : count - j;
        const bf16 *keys = rows ? page_keys(t, seq, (first + j) / PAGE, head) + (first + j) % PAGE * dim : t->pool;
        pack_transposed(b->keys + j, KEYS, keys, dim, rows, dim);
    }
    for (int64_t j = 0; j < count; j++) {
        const bf16 *key = page_keys(t, seq, (first + j) / PAGE, head) + (first + j) % PAGE * dim;
        const bf16 *value = key + value_offset(&t->shape);
        unpack_row(b->values + j * MAX_DIM, value, dim, padded(dim));
        for (int64_t d = 0; d < dim; d++) {
            uint16_t size = value[d] & 0x7fffu;
            largest = size > largest ? size : largest;
        }
    }
    b->numbers = largest < 0x7f80u;
}

/* Queries r0...rows-1, the first at `position`, against the `count` keys from `first` on that are loaded. */
static void attend_block(const attention *t, block_memory *b, int64_t rows, int64_t position, int64_t first,
                         int64_t count) {
    int64_t r0 = t->causal && first > position ? first - position : 0, live = rows - r0, cols = padded(t->shape.dim);
    float *scores = b->scores + r0 * S_STRIDE, *out = b->out + r0 * Q_STRIDE;
    for (int64_t j = 0; j < count; j += TILE_COLS)
        tile_product(live, scores + j, S_STRIDE, b->q + r0 * Q_STRIDE, Q_STRIDE, b->keys + j, KEYS, t->shape.dim, 0);
    for (int64_t r = r0; r < rows; r++) {
        int64_t seen = t->causal ? least(count, position + r - first + 1) : count;
        float *row = b->scores + r * S_STRIDE, *sum = b->out + r * Q_STRIDE;
        float factor = soften(row, seen, b->top + r, b->total + r);
        for (int64_t d = 0; d < cols; d++) sum[d] *= factor;
        for (int64_t d = 0; d < cols && !b->numbers; d += TILE_COLS)
            tile_product(1, sum + d, Q_STRIDE, row, S_STRIDE, b->values + d, MAX_DIM, seen, 1);
    }
    for (int64_t d = 0; d < cols && b->numbers; d += TILE_COLS)
        tile_product(live, out + d, Q_STRIDE, scores, S_STRIDE, b->values + d, MAX_DIM, count, 1);
}

static void store_out(bf16 *to, const float *sum, float total, int64_t dim) {
    float scale = total == 0.0f ? 0.0f : 1.0f / total; /* no keys: zeros */
    for (int64_t d = 0; d < dim; d++) to[d] = to_bf16(sum[d] * scale);
}

/* `rows` queries of one sequence and head, the first is query `token` of the call, at `position`. */
static void prefill_block(const attention *t, int64_t seq, int64_t head, int64_t token, int64_t rows,
                          int64_t position) {
    block_memory b;
    int64_t dim = t->shape.dim, kv_head = head / (t->q_heads / t->shape.kv_heads);
    int64_t keys = least(t->causal ? position + rows : t->seq_lens[seq], t->pages * PAGE);
    for (int64_t r = 0; r < rows; r++) {
        const bf16 *q = t->q + (token + r) * t->row_stride + head * dim;
        for (int64_t d = 0; d < dim; d++) b.q[r * Q_STRIDE + d] = from_bf16(q[d]) * t->scale;
        memset(b.out + r * Q_STRIDE, 0, (size_t)padded(dim) * sizeof(float));
        b.top[r] = -INFINITY;
        b.total[r] = 0.0f;
    }
    for (int64_t first = 0; first < keys; first += KEYS) {
        int64_t count = least(KEYS, keys - first);
        load_keys_and_values(t, &b, seq, kv_head, first, count);
        attend_block(t, &b, rows, position, first, count);
    }
    for (int64_t r = 0; r < rows; r++)
        store_out(t->out + ((token + r) * t->q_heads + head) * dim, b.out + r * Q_STRIDE, b.total[r], dim);
}

static void prefill_sequence(const kern_launch *launch, const attention *t, int64_t seq) {
    int64_t begin = t->cu_seqlens_q[seq], tokens = t->cu_seqlens_q[seq + 1] - begin;
    int64_t start = t->seq_lens[seq] - tokens, blocks = (tokens + QUERIES - 1) / QUERIES;
    /* Later blocks see more keys: the longest first, to whichever thread is free. */
#pragma omp parallel for schedule(dynamic, 1) num_threads(launch->threads)
    for (int64_t i = 0; i < blocks * t->q_heads; i++) {
        int64_t block = blocks - 1 - i / t->q_heads, first = block * QUERIES;
        prefill_block(t, seq, i % t->q_heads, begin + first, least(QUERIES, tokens - first), start + first);
    }
}

KERN_KERNEL(attention_prefill, "ptr,ptr,ptr,ptr,ptr,ptr,i32,i32,i32,i32,i32,i32,i64,f32") {
    attention t = prefill_of(params, 1);
    for (int64_t seq = 0; seq < t.seqs; seq++) prefill_sequence(launch, &t, seq);
}

KERN_KERNEL(attention_full, "ptr,ptr,ptr,ptr,ptr,ptr,i32,i32,i32,i32,i32,i32,i64,f32") {
    attention t = prefill_of(params, 0);
    for (int64_t seq = 0; seq < t.seqs; seq++) prefill_sequence(launch, &t, seq);
}

/* Even and odd elements of a head apart, as pairs of bf16 fall into vectors; zero from dim / 2 on. */
typedef struct {
    _Alignas(64) float even[MAX_DIM / 2 + LANES], odd[MAX_DIM / 2 + LANES];
} split;

/* Elements d ... d + TILE_COLS - 1 of a head, zeros past its end. */
ALWAYS_INLINE vec_u32 head_pairs(const bf16 *head, int64_t d, int64_t dim) {
    return d + TILE_COLS <= dim ? load_pairs(head + d) : load_pairs_part(head + d, dim - d);
}

/* scores[j] = q . keys[j] for the first `count` keys of a page. */
ALWAYS_INLINE void score_page(float *scores, const split *q, const bf16 *keys, int64_t count, const int64_t dim) {
    for (int64_t first = 0; first < count; first += LANES) {
        vec_u32 sums[LANES];
        for (int j = 0; j < LANES; j++) {
            const bf16 *key = keys + least(first + j, count - 1) * dim;
            vec even = {0}, odd = {0};
            for (int64_t d = 0; d < dim; d += TILE_COLS) {
                vec_u32 pairs = head_pairs(key, d, dim);
                even += even_of(pairs) * load(q->even + d / 2);
                odd += odd_of(pairs) * load(q->odd + d / 2);
            }
            sums[j] = (vec_u32)(even + odd);
        }
        transpose(sums);
        vec total = (vec)sums[0];
        for (int i = 1; i < LANES; i++) total += (vec)sums[i];
        store(scores + first, total);
    }
}

/* sum = sum * factor + weights . values, for the first `count` values of a page. */
ALWAYS_INLINE void add_values(split *sum, float factor, const float *weights, const bf16 *values, int64_t count,
                              const int64_t dim) {
    for (int64_t d = 0; d < dim; d += TILE_COLS) {
        vec even = load(sum->even + d / 2) * factor, odd = load(sum->odd + d / 2) * factor;
        for (int64_t j = 0; j < count; j++) {
            vec_u32 pairs = head_pairs(values + j * dim, d, dim);
            even += weights[j] * even_of(pairs);
            odd += weights[j] * odd_of(pairs);
        }
        store(sum->even + d / 2, even);
        store(sum->odd + d / 2, odd);
    }
}

ALWAYS_INLINE void decode_head(const attention *t, int64_t seq, int64_t head, const int64_t dim) {
    _Alignas(64) float scores[KEYS], whole[MAX_DIM];
    split q = {0}, sum = {0};
    int64_t kv_head = head / (t->q_heads / t->shape.kv_heads);
    int64_t keys = least(t->seq_lens[seq], t->pages * PAGE);
    const bf16 *from = t->q + seq * t->row_stride + head * dim;
    float top = -INFINITY, total = 0.0f;
    for (int64_t d = 0; d < dim; d++) (d % 2 ? q.odd : q.even)[d / 2] = from_bf16(from[d]) * t->scale;
    for (int64_t first = 0; first < keys; first += KEYS) {
        int64_t count = least(KEYS, keys - first);
        for (int64_t j = 0; j < count; j += PAGE)
            score_page(scores + j, &q, page_keys(t, seq, (first + j) / PAGE, kv_head), least(PAGE, count - j), dim);
        float factor = soften(scores, count, &top, &total);
        for (int64_t j = 0; j < count; j += PAGE) {
            const bf16 *values = page_keys(t, seq, (first + j) / PAGE, kv_head) + value_offset(&t->shape);
            add_values(&sum, j ? 1.0f : factor, scores + j, values, least(PAGE, count - j), dim);
        }
    }
    for (int64_t d = 0; d < dim; d++) whole[d] = (d % 2 ? sum.odd : sum.even)[d / 2];
    store_out(t->out + (seq * t->q_heads + head) * dim, whole, total, dim);
}

static void decode_rows(const kern_launch *launch, void *const *params, int64_t begin, int64_t end) {
    attention t = decode_of(params);
    (void)launch;
    for (int64_t row = begin; row < end; row++) {
        int64_t seq = row / t.q_heads, head = row % t.q_heads;
        if (t.shape.dim == 64) /* the usual sizes, compiled for them: a third faster */
            decode_head(&t, seq, head, 64);
        else if (t.shape.dim == 128)
            decode_head(&t, seq, head, 128);
        else
            decode_head(&t, seq, head, t.shape.dim);
    }
}

KERN_KERNEL(attention_decode, "ptr,ptr,ptr,ptr,ptr,i32,i32,i32,i32,i32,i32,i64,f32") {
    attention t = decode_of(params);
    int64_t keys = 0;
    for (int64_t seq = 0; seq < t.seqs; seq++) keys += least(t.seq_lens[seq], t.pages * PAGE);
    for_rows(launch, params, t.seqs * t.q_heads, 1, keys * t.q_heads * t.shape.dim, decode_rows);
}
