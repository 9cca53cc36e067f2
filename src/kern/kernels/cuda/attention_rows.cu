// The rows of a round of speculation, up to ROUND_ROWS new tokens of each sequence: their queries and keys normed and
// rotated, their keys and values appended to the paged pool, and attention, causal or full, the context split over
// blocks. A block takes QUERIES pairs of a row and a query head of one key head of one sequence.
#include "attention_split.cuh"

static_assert(ROUND_ROWS >= 1 && ROUND_ROWS <= WARP, "a lane looks after each row");

using RowsMemory = SplitMemory<ROUND_ROWS>;

// The block's pairs of all tokens · group: a row's heads next to each other.
struct Pairs {
    int group, first, count;

    __device__ Pairs(int tokens, int group, int block) : group(group), first(block * QUERIES) {
        count = min(QUERIES, tokens * group - first);
    }

    __device__ int row(int i) const { return (first + i) / group; }
};

struct RowsCall {
    // [seqs, kv_heads, ROUND_ROWS · group, SPLITS, HEAD_DIM], the same with the top and the total in place of HEAD_DIM
    float *sums, *weights;
    const bf16* qkv;
    const i64* positions;
    const float* cos_sin;
    bf16* pool;
    const i64* slots;
    const int *block_table, *seq_lens;
    int tokens, pages, q_heads, kv_heads, row_stride;
    i64 page_stride;
    float scale;

    // The part of sequence `s` of `seqs`, as if it were the only one.
    __device__ RowsCall of(int s, int seqs) const {
        RowsCall own = *this;
        own.tokens = tokens / seqs;
        i64 row = static_cast<i64>(s) * own.tokens, pair = static_cast<i64>(s) * q_heads * ROUND_ROWS;
        own.sums += pair * SPLITS * HEAD_DIM, own.weights += pair * SPLITS * 2;
        own.qkv += row * row_stride, own.positions += row, own.slots += row;
        own.block_table += static_cast<i64>(s) * pages, own.seq_lens += s;
        return own;
    }
};

// A warp's share of the queries. Where a product has more rows than there are pairs, they are the last pair's.
struct QueryShare {
    static constexpr int SHARE = QUERIES / SPLIT_WARPS;
    const bf16* from[SHARE];
    Angles angles[SHARE];
    Head heads[SHARE];

    __device__ static int index(int i) { return i * SPLIT_WARPS + warp_index(); }

    // What is known before the heads themselves; `position` is that of row `lane`.
    __device__ QueryShare(const RowsCall& call, const Pairs& pairs, int head, i64 position) {
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            int pair = pairs.first + min(index(i), pairs.count - 1), row = pair / pairs.group;
            int q = head * pairs.group + pair % pairs.group;
            from[i] = call.qkv + static_cast<i64>(row) * call.row_stride + q * HEAD_DIM;
            angles[i] = Angles(call.cos_sin + __shfl_sync(ALL_LANES, position, row) * HEAD_DIM);
        }
    }

    __device__ void load() {
#pragma unroll
        for (int i = 0; i < SHARE; i++) heads[i] = load_head(from[i]);
    }

    __device__ void store(bf16* tile, const Norms& norms, const Head& gain) {
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            if (norms.q != nullptr) norm_head(heads[i], gain, norms.eps);
            rotate_head(heads[i], angles[i]);
            store_query(tile, index(i), heads[i]);
        }
    }
};

// A warp's share of the new keys and values that are in the block's split, `which` of all rows. Every lane loads, where
// it has no row another of these, so that all loads are in flight at once.
struct KeyShare {
    static constexpr int SHARE = ceil_div(ROUND_ROWS, SPLIT_WARPS);
    u32 which;
    Angles angles[SHARE];
    Head keys[SHARE], values[SHARE];

    __device__ static int row(int i) { return i * SPLIT_WARPS + warp_index(); }
    __device__ bool has(int i) const { return which >> row(i) & 1; }
    __device__ int loaded(int i) const { return has(i) ? row(i) : __ffs(which) - 1; }

    __device__ KeyShare(u32 which, const float* cos_sin, i64 position) : which(which) {
        if (which == 0) return;
#pragma unroll
        for (int i = 0; i < SHARE; i++)
            angles[i] = Angles(cos_sin + __shfl_sync(ALL_LANES, position, loaded(i)) * HEAD_DIM);
    }

    // Of the first row `key` and, `to_values` further on, its value; then row after row.
    __device__ void load(const bf16* key, int to_values, int row_stride) {
        if (which == 0) return;
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            const bf16* from = key + static_cast<i64>(loaded(i)) * row_stride;
            keys[i] = load_head(from);
            values[i] = load_head(from + to_values);
        }
    }

    // Kept for this block, and, by one of the blocks that share a split, written to their slots: `slot` of row `lane`.
    __device__ void append(RowsMemory& shared, const Pool& pool, int head, i64 slot, const Norms& norms,
                           const Head& gain, bool writes) {
        if (which == 0) return;
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            if (norms.k != nullptr) norm_head(keys[i], gain, norms.eps);
            rotate_head(keys[i], angles[i]);
            i64 to = __shfl_sync(ALL_LANES, slot, loaded(i));
            if (!has(i)) continue;
            store_head(shared.keys + row(i) * HEAD_DIM, keys[i]);
            store_head(shared.values + row(i) * HEAD_DIM, values[i]);
            if (writes) store_slot(pool, to, head, keys[i], values[i]);
        }
    }
};

// All but the rows of queries, keys and values is older than the product that makes these, and is read before the wait.
// That product waits before it lets this kernel start, or is started without a dependent launch: either way what came
// before it, such as the kernel that laid the round's positions and slots, is over.
template <bool CAUSAL>
__device__ static void partial(const RowsCall& all, int seqs, const Norms& norms) {
    extern __shared__ __align__(128) char bytes[];
    auto& shared = *reinterpret_cast<RowsMemory*>(bytes);
    int blocks = gridDim.z / seqs, split_index = blockIdx.x, head = blockIdx.y, lane = lane_index();
    int block = blockIdx.z % blocks;
    RowsCall call = all.of(blockIdx.z / blocks, seqs);
    if (call.tokens > ROUND_ROWS || call.tokens * seqs != all.tokens) __trap();
    Pairs pairs(call.tokens, call.q_heads / call.kv_heads, block);
    bool has_row = lane < call.tokens;
    int length = load_fresh<int>(call.seq_lens);
    i64 slot = has_row ? load_fresh<i64>(call.slots + lane) : -1;
    i64 position = has_row ? load_fresh<i64>(call.positions + lane) : 0;
    // Past the table's last page a row has no result; the angles end there too.
    position = min(position, static_cast<i64>(call.pages) * PAGE - 1);
    Split split(length, call.pages, split_index);
    // One block waits in any case: this kernel is not over before those ahead of it.
    if (pairs.count <= 0 || (split.first >= split.end && split_index > 0)) return;
    int first = length - call.tokens, begin = split.first * PAGE, end = min(split.end * PAGE, split.keys);
    bool is_fresh = slot >= 0 && first + lane >= begin && first + lane < end;
    Fresh fresh{first, __ballot_sync(ALL_LANES, is_fresh)};
    Pool pool{call.pool, call.page_stride, call.kv_heads};
    Pages pages{pool, call.block_table, head, split.keys};
    load_first_page(shared.page[warp_index()], pages, split);
    QueryShare queries(call, pairs, head, position);
    KeyShare keys(fresh.which, call.cos_sin, position);
    Head q_gain, k_gain;
    if (norms.q != nullptr) q_gain = load_gain(norms.q), k_gain = load_gain(norms.k);
    wait_for_previous_kernels();
    start_next_kernel();
    queries.load();
    keys.load(call.qkv + (call.q_heads + head) * HEAD_DIM, call.kv_heads * HEAD_DIM, call.row_stride);
    queries.store(shared.q, norms, q_gain);
    keys.append(shared, pool, head, slot, norms, k_gain, block == 0);
    __syncthreads();
    int seen[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = pairs.row(lane / 4 + half * 8);
        seen[half] = CAUSAL ? min(first + row + 1, split.keys) : split.keys;
    }
    Weighted weighted;
    weighted.clear();
    attend(weighted, shared, pages, split, fresh, seen, call.scale * LOG2_E);
    i64 part = (static_cast<i64>(head) * ROUND_ROWS * pairs.group + pairs.first) * SPLITS + split_index;
    store_partial(shared, weighted, call.sums + part * HEAD_DIM, call.weights + part * 2, pairs.count);
}

#define PLAIN_ROWS(name, causal)                                                                                       \
    KERNEL(SPLIT_THREADS, ROWS_BLOCKS)                                                                                 \
    name(float* sums, float* weights, const bf16* qkv, const i64* positions, const float* cos_sin, bf16* pool,         \
         const i64* slots, const int* block_table, const int* seq_lens, int tokens, int seqs, int pages, int q_heads,  \
         int kv_heads, int dim, int row_stride, i64 page_stride, float scale) {                                        \
        expect(dim, HEAD_DIM);                                                                                         \
        partial<causal>({sums, weights, qkv, positions, cos_sin, pool, slots, block_table, seq_lens, tokens, pages,    \
                         q_heads, kv_heads, row_stride, page_stride, scale},                                           \
                        seqs, {nullptr, nullptr, 0.0f});                                                               \
    }

#define NORMED_ROWS(name, causal)                                                                                      \
    KERNEL(SPLIT_THREADS, ROWS_BLOCKS)                                                                                 \
    name(float* sums, float* weights, const bf16* qkv, const bf16* q_norm, const bf16* k_norm, const i64* positions,   \
         const float* cos_sin, bf16* pool, const i64* slots, const int* block_table, const int* seq_lens, int tokens,  \
         int seqs, int pages, int q_heads, int kv_heads, int dim, int row_stride, i64 page_stride, float eps,          \
         float scale) {                                                                                                \
        expect(dim, HEAD_DIM);                                                                                         \
        partial<causal>({sums, weights, qkv, positions, cos_sin, pool, slots, block_table, seq_lens, tokens, pages,    \
                         q_heads, kv_heads, row_stride, page_stride, scale},                                           \
                        seqs, {q_norm, k_norm, eps});                                                                  \
    }

PLAIN_ROWS(append_attention_rows_partial, true)
PLAIN_ROWS(append_attention_rows_full_partial, false)
NORMED_ROWS(norm_append_attention_rows_partial, true)
NORMED_ROWS(norm_append_attention_rows_full_partial, false)

// out [tokens, q_heads · HEAD_DIM] from the splits' parts; a block per head of a row, a thread per element.
KERNEL(HEAD_DIM, 1)
attention_rows_combine(bf16* out, const float* sums, const float* weights, const int* seq_lens, int tokens, int seqs,
                       int pages, int q_heads, int kv_heads) {
    start_next_kernel();
    int head = blockIdx.x, s = blockIdx.y / ROUND_ROWS, row = blockIdx.y % ROUND_ROWS, group = q_heads / kv_heads;
    i64 pair = ((static_cast<i64>(s) * kv_heads + head / group) * ROUND_ROWS + row) * group + head % group;
    i64 to = (static_cast<i64>(s) * (tokens / seqs) + row) * q_heads + head;
    int in_use = Split::in_use(load_fresh<int>(seq_lens + s), pages);
    wait_for_previous_kernels();
    if (row >= tokens / seqs) return;
    combine(out + to * HEAD_DIM, sums + pair * SPLITS * HEAD_DIM, weights + pair * SPLITS * 2, in_use);
}
