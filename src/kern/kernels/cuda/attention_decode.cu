// One token per sequence: its queries and key normed and rotated, its key and value appended to the paged pool, and
// attention over all keys, the context split over blocks. A block takes all query heads of one key head.
#include "attention_split.cuh"

using DecodeMemory = SplitMemory<1>;

// A warp's share of the group's queries, and the token's own key and value.
struct TokenHeads {
    static constexpr int SHARE = QUERIES / SPLIT_WARPS;
    Head q[SHARE] = {}, key, value;

    __device__ static int index(int i) { return i * SPLIT_WARPS + warp_index(); }

    __device__ TokenHeads(const bf16* row, int head, int group, int q_heads, int kv_heads) {
#pragma unroll
        for (int i = 0; i < SHARE; i++)
            if (index(i) < group) q[i] = load_head(row + (head * group + index(i)) * HEAD_DIM);
        key = load_head(row + (q_heads + head) * HEAD_DIM);
        value = load_head(row + (q_heads + kv_heads + head) * HEAD_DIM);
    }

    // Queries into a tile; zeros where a product has more rows than the group has heads.
    __device__ void store_queries(bf16* tile, int group, const Norms& norms, const Head& gain, const Angles& angles) {
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            if (index(i) < group) {
                if (norms.q != nullptr) norm_head(q[i], gain, norms.eps);
                rotate_head(q[i], angles);
            }
            store_query(tile, index(i), q[i]);
        }
    }

    // Key and value kept for this block, and written to their slot.
    __device__ void append(DecodeMemory& shared, const Pool& pool, int head, i64 slot, const Norms& norms,
                           const Head& gain, const Angles& angles) {
        if (norms.k != nullptr) norm_head(key, gain, norms.eps);
        rotate_head(key, angles);
        store_head(shared.keys, key);
        store_head(shared.values, value);
        if (slot >= 0) store_slot(pool, slot, head, key, value);
    }
};

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
    // Past the table's last page the step has no result; the angles end there too.
    position = min(position, static_cast<i64>(call.pages) * PAGE - 1);
    Split split(length, call.pages, split_index);
    // One block waits in any case: this kernel is not over before those ahead of it.
    if (split.first >= split.end && split_index > 0) return;
    Angles angles(call.cos_sin + position * HEAD_DIM);
    Pool pool{call.pool, call.page_stride, call.kv_heads};
    Pages pages{pool, call.block_table + static_cast<i64>(seq) * call.pages, head, split.keys};
    load_first_page(shared.page[warp_index()], pages, split);
    Head q_gain, k_gain;
    if (norms.q != nullptr) q_gain = load_gain(norms.q), k_gain = load_gain(norms.k);
    wait_for_previous_kernels();
    start_next_kernel();
    const bf16* row = call.qkv + static_cast<i64>(seq) * call.row_stride;
    TokenHeads heads(row, head, group, call.q_heads, call.kv_heads);
    heads.store_queries(shared.q, group, norms, q_gain, angles);
    bool has_last_key = split.first < split.end && split.end == split.pages;
    if (has_last_key && warp_index() == 0) heads.append(shared, pool, head, slot, norms, k_gain, angles);
    __syncthreads();
    Fresh token{split.keys - 1, has_last_key && length <= call.pages * PAGE};
    Weighted weighted;
    weighted.clear();
    attend(weighted, shared, pages, split, token, {split.keys, split.keys}, call.scale * LOG2_E);
    i64 first = (static_cast<i64>(seq) * call.q_heads + head * group) * SPLITS + split_index;
    store_partial(shared, weighted, call.sums + first * HEAD_DIM, call.weights + first * 2, group);
}

KERNEL(SPLIT_THREADS, 1)
append_attention_partial(float* sums, float* weights, const bf16* qkv, const i64* positions, const float* cos_sin,
                         bf16* pool, const i64* slots, const int* block_table, const int* seq_lens, int pages,
                         int q_heads, int kv_heads, int dim, int row_stride, i64 page_stride, float scale) {
    expect(dim, HEAD_DIM);
    partial({sums, weights, qkv, positions, cos_sin, pool, slots, block_table, seq_lens, pages, q_heads, kv_heads,
             row_stride, page_stride, scale},
            {nullptr, nullptr, 0.0f});
}

KERNEL(SPLIT_THREADS, 1)
norm_append_attention_partial(float* sums, float* weights, const bf16* qkv, const bf16* q_norm, const bf16* k_norm,
                              const i64* positions, const float* cos_sin, bf16* pool, const i64* slots,
                              const int* block_table, const int* seq_lens, int pages, int q_heads, int kv_heads,
                              int dim, int row_stride, i64 page_stride, float eps, float scale) {
    expect(dim, HEAD_DIM);
    partial({sums, weights, qkv, positions, cos_sin, pool, slots, block_table, seq_lens, pages, q_heads, kv_heads,
             row_stride, page_stride, scale},
            {q_norm, k_norm, eps});
}

// out [seqs, q_heads · HEAD_DIM] from the splits' parts; a block per head, a thread per element.
KERNEL(HEAD_DIM, 1)
attention_combine(bf16* out, const float* sums, const float* weights, const int* seq_lens, int pages, int q_heads) {
    start_next_kernel();
    int head = blockIdx.x, seq = blockIdx.y;
    i64 row = static_cast<i64>(seq) * q_heads + head;
    int in_use = Split::in_use(load_fresh<int>(seq_lens + seq), pages);
    wait_for_previous_kernels();
    combine(out + row * HEAD_DIM, sums + row * SPLITS * HEAD_DIM, weights + row * SPLITS * 2, in_use);
}
