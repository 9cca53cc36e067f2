// What a block of attention of one token per sequence works on, an item at a time: what it loads before the product that
// makes the token's queries has ended, and the queries themselves, which it norms and rotates.
#pragma once
#include "attention_columns.cuh"
#include "attention_split.cuh"
#include "attention_work.cuh"

constexpr int STAGED = GROUP < 4 ? GROUP : 4;                 // queries whose sums the warps exchange at once
constexpr int STAGED_WIDTH = HEAD_DIM + 8;                    // so that two queries' sums lie in different banks
constexpr int TOKEN_ROWS = ceil_div(GROUP + 2, TOKEN_WARPS);  // of queries, key and value, for each warp

struct DecodeCall {
    bf16* out;
    float *sums, *weights;  // [seqs, q_heads, TOKEN_PARTS, HEAD_DIM], [seqs, q_heads, TOKEN_PARTS, top and total]
    const bf16* qkv;
    const i64* positions;
    const float* cos_sin;
    Pool pool;
    const i64* slots;
    const int *block_table, *seq_lens;
    int seqs, pages, row_stride;
    float scale;

    __device__ int head() const { return blockIdx.x % pool.kv_heads; }
};

// One part of a sequence: pages `first` up to `end`.
struct Item {
    int seq, part, parts, keys, first, end;
    int fresh;  // the new token's place in the sequence, if it is here; -1: it has no place, -2: it is in another part

    Item() = default;
    __device__ Item(const Work& work, int table_pages) : seq(work.seq), part(work.part) {
        Parts all(work.length, table_pages);
        keys = all.keys, parts = all.count;
        first = min(part * all.share, all.pages);
        end = min(first + all.share, all.pages);
        fresh = first == end || end < all.pages ? -2 : work.length > keys ? -1 : keys - 1;
    }

    __device__ int own_page() const { return first + warp_index(); }
    __device__ bool has_last_page() const { return fresh > -2; }
    __device__ Pages pages(const DecodeCall& call) const {
        return {call.pool, call.block_table + static_cast<i64>(seq) * call.pages, call.head(), keys};
    }
};

struct DecodeMemory {
    WarpMemory page[TOKEN_WARPS];
    float sum[TOKEN_WARPS][STAGED][STAGED_WIDTH];
    bf16 q[TILES * TILE_QUERIES * HEAD_DIM];
    bf16 key[HEAD_DIM], value[HEAD_DIM];  // of the token itself
    bf16 gains[2 * HEAD_DIM];             // of the queries' norm, and of the key's
    float top[TOKEN_WARPS][TILES * TILE_QUERIES], total[TOKEN_WARPS][TILES * TILE_QUERIES];
    WorkMemory work;
};

// What is known of an item before the product that makes its queries has ended.
struct Ahead {
    const bf16* page;  // of this warp, its first
    int position;
    i64 slot;

    Ahead() = default;
    __device__ Ahead(const Item& item, const DecodeCall& call) {
        page = item.own_page() < item.end ? item.pages(call).keys_of(item.own_page()) : nullptr;
        // Past the table's last page the step has no result; the angles end there too.
        i64 last = static_cast<i64>(call.pages) * PAGE - 1;
        position = static_cast<int>(min(load_fresh<i64>(call.positions + item.seq), last));
        slot = load_fresh<i64>(call.slots + item.seq);
    }

    __device__ void load_page_of(const Item& item, WarpMemory& memory, const DecodeCall& call) const {
        if (page == nullptr) {
            commit_copies(), commit_copies();
            return;
        }
        int valid = min(item.keys - item.own_page() * PAGE, PAGE);
        load_page(memory.keys, page, valid);
        load_page(memory.values, page + call.pool.values_offset(), valid);
    }
};

// The norms' weights on their way to shared memory.
__device__ inline void load_gains(DecodeMemory& shared, const Norms& norms) {
    if (norms.q != nullptr && threadIdx.x < 2 * PIECES) {
        int at = threadIdx.x % PIECES * PIECE;
        copy_async(shared.gains + threadIdx.x * PIECE, (threadIdx.x < PIECES ? norms.q : norms.k) + at, true);
    }
    commit_copies();
}

// A warp's rows of an item: queries, after them the key and the value.
struct Rows {
    Held<bf16> low[TOKEN_ROWS], high[TOKEN_ROWS];
    Angles angles;

    __device__ static int index(int i) { return i * TOKEN_WARPS + warp_index(); }
    __device__ static bool has(int i, const Item& item) { return index(i) < GROUP + (item.has_last_page() ? 2 : 0); }

    __device__ void load_angles(const Ahead& ahead, const DecodeCall& call) {
        angles = Angles(call.cos_sin + static_cast<i64>(ahead.position) * HEAD_DIM);
    }

    __device__ void load(const Item& item, const DecodeCall& call) {
        const bf16* row = call.qkv + static_cast<i64>(item.seq) * call.row_stride;
#pragma unroll
        for (int i = 0; i < TOKEN_ROWS; i++) {
            if (!has(i, item)) continue;
            // The key heads are behind all queries, the value heads behind all keys.
            int at = index(i), kv_heads = call.pool.kv_heads;
            int head = at < GROUP ? call.head() * GROUP + at : kv_heads * at + call.head();
            low[i] = held_fresh(row + head * HEAD_DIM), high[i] = held_fresh(row + head * HEAD_DIM + HALF);
        }
    }

    // Queries into their tile, key and value kept for this block and written to their slot.
    __device__ void store(DecodeMemory& shared, const Item& item, i64 slot, const DecodeCall& call,
                          const Norms& norms) const {
#pragma unroll
        for (int i = 0; i < TOKEN_ROWS; i++) {
            if (!has(i, item)) continue;
            int at = index(i);
            Head head = head_of(low[i], high[i]);
            if (at <= GROUP) {
                if (norms.q != nullptr) norm_head(head, shared.gains + (at < GROUP ? 0 : HEAD_DIM), norms.eps);
                rotate_head(head, angles);
            }
            if (at < GROUP) {
                store_query(shared.q, at, head);
                continue;
            }
            store_head(at == GROUP ? shared.key : shared.value, head);
            if (slot < 0) continue;
            bf16* to = call.pool.keys(slot / PAGE, call.head()) + slot % PAGE * HEAD_DIM;
            store_head(at == GROUP ? to : to + call.pool.values_offset(), head);
        }
    }
};
