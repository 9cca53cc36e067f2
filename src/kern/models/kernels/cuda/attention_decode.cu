// One token a sequence: its queries and key normed and rotated, its key and value appended to the paged pool, and
// attention over all keys, the context split over blocks (Dao et al. 2023, "Flash-Decoding"): each leaves a partial
// sum, and a second kernel combines them. A block takes all query heads of one key head, a warp one page at a time.
#include "attention.cuh"
#include "heads.cuh"

constexpr int DECODE_WARPS = 4;
constexpr int DECODE_THREADS = DECODE_WARPS * WARP;

struct WarpMemory {
    bf16 keys[PAGE * HEAD_DIM], values[PAGE * HEAD_DIM];
};

struct DecodeMemory {
    union {
        WarpMemory page[DECODE_WARPS];
        float sum[DECODE_WARPS][QUERIES][HEAD_DIM];  // once the pages are done with
    };
    bf16 q[QUERIES * HEAD_DIM];
    bf16 key[HEAD_DIM], value[HEAD_DIM];  // of the token itself
    float top[DECODE_WARPS][QUERIES], total[DECODE_WARPS][QUERIES];
};

// The pages of a sequence that a split works on.
struct Split {
    int keys, pages, first, end;

    // A short context takes few splits, each with a page for every warp.
    __device__ Split(int length, int table_pages, int split) {
        keys = min(length, table_pages * PAGE);
        pages = ceil_div(keys, PAGE);
        int share = share_of(pages);
        first = min(split * share, pages);
        end = min(first + share, pages);
    }

    __device__ static int share_of(int pages) { return max(DECODE_WARPS, ceil_div(pages, SPLITS)); }

    __device__ bool has_last_key() const { return first < end && end == pages; }
};

struct Norms {
    const bf16 *q, *k;
    float eps;
};

// A warp's share of the group's queries, and the token's own key and value.
struct TokenHeads {
    static constexpr int SHARE = QUERIES / DECODE_WARPS;
    Head q[SHARE] = {}, key, value;

    __device__ static int index(int i) { return i * DECODE_WARPS + warp_index(); }

    __device__ TokenHeads(const bf16* row, int head, int group, int q_heads, int kv_heads) {
#pragma unroll
        for (int i = 0; i < SHARE; i++)
            if (index(i) < group) q[i] = load_head(row + (head * group + index(i)) * HEAD_DIM);
        key = load_head(row + (q_heads + head) * HEAD_DIM);
        value = load_head(row + (q_heads + kv_heads + head) * HEAD_DIM);
    }

    // Queries into a tile; zeros where a product has more rows than the group has heads.
    __device__ void store_queries(bf16* tile, int group, const Norms& norms, const Angles& angles) {
        int at = lane_index() * HELD;  // within one piece of each half
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            if (index(i) < group) {
                if (norms.q != nullptr) norm_head(q[i], norms.q, norms.eps);
                rotate_head(q[i], angles);
            }
            store_held(piece_at(tile, index(i), at / PIECE) + at % PIECE, q[i].low);
            store_held(piece_at(tile, index(i), (at + HALF) / PIECE) + at % PIECE, q[i].high);
        }
    }

    // Key and value kept for this block, and written to their slot.
    __device__ void append(DecodeMemory& shared, const Pool& pool, int head, i64 slot, const Norms& norms,
                           const Angles& angles) {
        if (norms.k != nullptr) norm_head(key, norms.k, norms.eps);
        rotate_head(key, angles);
        store_head(shared.key, key);
        store_head(shared.value, value);
        if (slot < 0) return;
        bf16* to = pool.keys(slot / PAGE, head) + slot % PAGE * HEAD_DIM;
        store_head(to, key);
        store_head(to + pool.values_offset(), value);
    }
};

// Rows of a page on their way to this warp's shared memory, `valid` of them; the rest is zero.
__device__ static void load_page(bf16* tile, const bf16* from, int valid) {
#pragma unroll
    for (int i = 0; i < PAGE * PIECES / WARP; i++) {
        int at = i * WARP + lane_index(), row = at / PIECES, piece = at % PIECES;
        copy_async(piece_at(tile, row, piece), from + (row < valid ? row * HEAD_DIM : 0) + piece * PIECE, row < valid);
    }
    commit_copies();
}

// Replace row `row` of a tile, which memory does not have yet.
__device__ static void replace_row(bf16* tile, int row, const bf16* with) {
    if (lane_index() < PIECES)
        *reinterpret_cast<uint4*>(piece_at(tile, row, lane_index())) =
            reinterpret_cast<const uint4*>(with)[lane_index()];
    __syncwarp();
}

struct Pages {
    Pool pool;
    const int* table;
    int head, keys;

    __device__ const bf16* keys_of(int page) const { return pool.keys(load_fresh<int>(table + page), head); }
    __device__ int valid(int page) const { return min(keys - page * PAGE, PAGE); }
};

// A warp's pages of a split, every DECODE_WARPS-th.
__device__ static void attend(Weighted& weighted, DecodeMemory& shared, const Pages& pages, const Split& split,
                              bool has_token, float scale) {
    auto& memory = shared.page[warp_index()];
    Queries queries;
    queries.load(shared.q);
    int column = lane_index() % 4 * 2;
    for (int page = split.first + warp_index(); page < split.end; page += DECODE_WARPS) {
        int next = page + DECODE_WARPS, last = pages.keys - 1 - page * PAGE;
        const bf16* coming = next < split.end ? pages.keys_of(next) : nullptr;
        wait_for_copies<1>();
        __syncwarp();
        if (has_token && last < PAGE) replace_row(memory.keys, last, shared.key);
        float s[PAGE / 8][4];
        score<PAGE>(s, queries, memory.keys);
        __syncwarp();
        if (coming) load_page(memory.keys, coming, pages.valid(next));
        else commit_copies();
#pragma unroll
        for (int n = 0; n < PAGE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[n][i] = n * 8 + column + i % 2 <= last ? s[n][i] * scale : -CUDART_INF_F;
        weighted.soften<PAGE>(s);
        wait_for_copies<1>();
        __syncwarp();
        if (has_token && last < PAGE) replace_row(memory.values, last, shared.value);
        weighted.add<PAGE>(s, memory.values);
        __syncwarp();
        if (coming) load_page(memory.values, coming + pages.pool.values_offset(), pages.valid(next));
        else commit_copies();
    }
}

// The warps' sums as one, relative to the greatest score among them.
__device__ static void store_partial(DecodeMemory& shared, const Weighted& weighted, float* sums, float* weights,
                                     int group) {
    int row = lane_index() / 4, column = lane_index() % 4 * 2, warp = warp_index();
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = weighted.whole_total(half);
        int at = row + half * 8;
        if (at >= group) continue;
#pragma unroll
        for (int n = 0; n < HEAD_DIM / 8; n++)
            *reinterpret_cast<float2*>(&shared.sum[warp][at][n * 8 + column]) =
                make_float2(weighted.sum[n][2 * half], weighted.sum[n][2 * half + 1]);
        if (column == 0) shared.top[warp][at] = weighted.top[half], shared.total[warp][at] = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < group * HEAD_DIM; i += DECODE_THREADS) {
        int at = i / HEAD_DIM, d = i % HEAD_DIM;
        float top = shared.top[0][at], sum = 0.0f, total = 0.0f;
#pragma unroll
        for (int w = 1; w < DECODE_WARPS; w++) top = fmaxf(top, shared.top[w][at]);
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++) {
            float factor = exp2f(shared.top[w][at] - top);  // 0 for a warp that had no page
            sum += shared.sum[w][at][d] * factor;
            total += shared.total[w][at] * factor;
        }
        sums[static_cast<i64>(at) * SPLITS * HEAD_DIM + d] = sum;
        if (d < 2) weights[at * SPLITS * 2 + d] = d == 0 ? top : total;
    }
}

struct DecodeCall {
    float *sums, *weights;  // [seqs, q_heads, SPLITS, HEAD_DIM], [seqs, q_heads, SPLITS, top and total]
    const bf16* qkv;
    const i64* positions;
    const float* cos_sin;
    bf16* pool;
    const i64* slots;
    const int *block_table, *seq_lens;
    int pages, q_heads, kv_heads, row_stride;
    i64 page_stride;
    float scale;
};

// All but the row of queries, keys and values is older than the product that makes this row, and is read before the
// wait: the pages' first loads are then under way while that product ends.
__device__ static void partial(const DecodeCall& call, const Norms& norms) {
    extern __shared__ __align__(128) char bytes[];
    auto& shared = *reinterpret_cast<DecodeMemory*>(bytes);
    int split_index = blockIdx.x, head = blockIdx.y, seq = blockIdx.z, group = call.q_heads / call.kv_heads;
    i64 position = load_fresh<i64>(call.positions + seq), slot = load_fresh<i64>(call.slots + seq);
    int length = load_fresh<int>(call.seq_lens + seq);
    // Past the table's last page nothing comes of the step; the angles end there too.
    position = min(position, static_cast<i64>(call.pages) * PAGE - 1);
    Split split(length, call.pages, split_index);
    // One block waits in any case: this kernel is not over before those ahead of it.
    if (split.first >= split.end && split_index > 0) return;
    Angles angles(call.cos_sin + position * HEAD_DIM);
    Pool pool{call.pool, call.page_stride, call.kv_heads};
    Pages pages{pool, call.block_table + static_cast<i64>(seq) * call.pages, head, split.keys};
    int page = split.first + warp_index();
    auto& memory = shared.page[warp_index()];
    if (page < split.end) {
        const bf16* keys = pages.keys_of(page);
        load_page(memory.keys, keys, pages.valid(page));
        load_page(memory.values, keys + pool.values_offset(), pages.valid(page));
    }
    wait_for_previous_kernels();
    start_next_kernel();
    const bf16* row = call.qkv + static_cast<i64>(seq) * call.row_stride;
    TokenHeads heads(row, head, group, call.q_heads, call.kv_heads);
    heads.store_queries(shared.q, group, norms, angles);
    if (split.has_last_key() && warp_index() == 0) heads.append(shared, pool, head, slot, norms, angles);
    __syncthreads();
    bool has_token = split.has_last_key() && length <= call.pages * PAGE;
    Weighted weighted;
    weighted.clear();
    attend(weighted, shared, pages, split, has_token, call.scale * LOG2_E);
    i64 first = (static_cast<i64>(seq) * call.q_heads + head * group) * SPLITS + split_index;
    store_partial(shared, weighted, call.sums + first * HEAD_DIM, call.weights + first * 2, group);
}

KERNEL(DECODE_THREADS, 2)
append_attention_partial(float* sums, float* weights, const bf16* qkv, const i64* positions, const float* cos_sin,
                         bf16* pool, const i64* slots, const int* block_table, const int* seq_lens, int pages,
                         int q_heads, int kv_heads, int dim, int row_stride, i64 page_stride, float scale) {
    expect(dim, HEAD_DIM);
    partial({sums, weights, qkv, positions, cos_sin, pool, slots, block_table, seq_lens, pages, q_heads, kv_heads,
             row_stride, page_stride, scale},
            {nullptr, nullptr, 0.0f});
}

KERNEL(DECODE_THREADS, 2)
norm_append_attention_partial(float* sums, float* weights, const bf16* qkv, const bf16* q_norm, const bf16* k_norm,
                              const i64* positions, const float* cos_sin, bf16* pool, const i64* slots,
                              const int* block_table, const int* seq_lens, int pages, int q_heads, int kv_heads,
                              int dim, int row_stride, i64 page_stride, float eps, float scale) {
    expect(dim, HEAD_DIM);
    partial({sums, weights, qkv, positions, cos_sin, pool, slots, block_table, seq_lens, pages, q_heads, kv_heads,
             row_stride, page_stride, scale},
            {q_norm, k_norm, eps});
}

// out [seqs, q_heads · HEAD_DIM] from the splits' parts; a block a head, a thread an element.
KERNEL(HEAD_DIM, 1)
attention_combine(bf16* out, const float* sums, const float* weights, const int* seq_lens, int pages, int q_heads) {
    start_next_kernel();
    int head = blockIdx.x, seq = blockIdx.y;
    i64 row = static_cast<i64>(seq) * q_heads + head;
    const float *from = sums + row * SPLITS * HEAD_DIM + threadIdx.x, *weight = weights + row * SPLITS * 2;
    int in_use = Split(load_fresh<int>(seq_lens + seq), pages, 0).pages;
    in_use = ceil_div(in_use, Split::share_of(in_use));
    wait_for_previous_kernels();
    float top = -CUDART_INF_F, part[SPLITS], tops[SPLITS], totals[SPLITS];
#pragma unroll
    for (int i = 0; i < SPLITS; i++) {
        bool used = i < in_use;
        part[i] = used ? __ldcg(from + i * HEAD_DIM) : 0.0f;
        float2 top_and_total = used ? __ldcg(reinterpret_cast<const float2*>(weight) + i) : float2{-CUDART_INF_F, 0.0f};
        tops[i] = top_and_total.x, totals[i] = top_and_total.y;
    }
#pragma unroll
    for (int i = 0; i < SPLITS; i++) top = fmaxf(top, tops[i]);
    float sum = 0.0f, total = 0.0f;
#pragma unroll
    for (int i = 0; i < SPLITS; i++) {
        float factor = tops[i] == -CUDART_INF_F ? 0.0f : exp2f(tops[i] - top);
        sum += part[i] * factor;
        total += totals[i] * factor;
    }
    out[row * HEAD_DIM + threadIdx.x] = __float2bfloat16(total > 0.0f ? sum / total : 0.0f);
}
