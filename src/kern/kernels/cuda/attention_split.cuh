// Attention with the context split over blocks (Dao et al. 2023, "Flash-Decoding"): each leaves a partial sum, and a
// second kernel combines them. A block takes up to QUERIES queries that share a key head, a warp one page at a time.
#pragma once
#include "attention.cuh"
#include "heads.cuh"

constexpr int SPLIT_THREADS = SPLIT_WARPS * WARP;

struct WarpMemory {
    bf16 keys[PAGE * HEAD_DIM], values[PAGE * HEAD_DIM];
};

// Of a block, with at most NEW new tokens in the sequence.
template <int NEW>
struct SplitMemory {
    union {
        WarpMemory page[SPLIT_WARPS];
        float sum[SPLIT_WARPS][QUERIES][HEAD_DIM];  // once the pages are done with
    };
    bf16 q[QUERIES * HEAD_DIM];
    bf16 keys[NEW * HEAD_DIM], values[NEW * HEAD_DIM];  // of the new tokens themselves
    float top[SPLIT_WARPS][QUERIES], total[SPLIT_WARPS][QUERIES];
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

    __device__ static int share_of(int pages) { return max(SPLIT_WARPS, ceil_div(pages, SPLITS)); }

    // How many splits have pages.
    __device__ static int in_use(int length, int table_pages) {
        int pages = Split(length, table_pages, 0).pages;
        return ceil_div(pages, share_of(pages));
    }
};

struct Norms {
    const bf16 *q, *k;  // null: no norms
    float eps;
};

struct Pages {
    Pool pool;
    const int* table;
    int head, keys;

    __device__ const bf16* keys_of(int page) const { return pool.keys(load_fresh<int>(table + page), head); }
    __device__ int valid(int page) const { return min(keys - page * PAGE, PAGE); }
};

// New tokens, whose keys and values memory does not have yet: the first is `first` keys into the sequence; those
// that `which` has a bit for, a block has in its shared memory.
struct Fresh {
    int first;
    u32 which;
};

// A query into row `row` of a tile.
__device__ inline void store_query(bf16* tile, int row, const Head& q) {
    int at = lane_index() * HELD;  // within one piece of each half
    store_held(piece_at(tile, row, at / PIECE) + at % PIECE, q.low);
    store_held(piece_at(tile, row, (at + HALF) / PIECE) + at % PIECE, q.high);
}

// A key and its value into a slot of the pool.
__device__ inline void store_slot(const Pool& pool, i64 slot, int head, const Head& key, const Head& value) {
    bf16* to = pool.keys(slot / PAGE, head) + slot % PAGE * HEAD_DIM;
    store_head(to, key);
    store_head(to + pool.values_offset(), value);
}

// Rows of a page on their way to this warp's shared memory, `valid` of them; the rest is zero.
__device__ inline void load_page(bf16* tile, const bf16* from, int valid) {
    u32 to = shared_address(tile);
    from += lane_index() * PIECE;
#pragma unroll
    for (int i = 0; i < PAGE * PIECES / WARP; i++) {
        int at = i * WARP + lane_index(), row = at / PIECES, piece = at % PIECES;
        u32 offset = (row * PIECES + (piece ^ row % 8)) * PIECE * sizeof(bf16);
        copy_async(to + offset, from + (row < valid ? i * WARP * PIECE : 0), row < valid);
    }
    commit_copies();
}

// The first pages of this warp's share, before anything else of them is known.
__device__ inline void load_first_page(WarpMemory& memory, const Pages& pages, const Split& split) {
    int page = split.first + warp_index();
    if (page >= split.end) return;
    const bf16* keys = pages.keys_of(page);
    load_page(memory.keys, keys, pages.valid(page));
    load_page(memory.values, keys + pages.pool.values_offset(), pages.valid(page));
}

// Put new tokens' rows, where they lie in this page, into a tile; the first token's row of the page would be `at`.
template <int NEW>
__device__ inline void replace_rows(bf16* tile, int at, const bf16* rows, u32 which) {
#pragma unroll
    for (int i = 0; i < ceil_div(NEW * PIECES, WARP); i++) {
        int index = i * WARP + lane_index(), row = index / PIECES, to = at + row;
        if (row < NEW && (which >> row & 1) && to >= 0 && to < PAGE)
            *reinterpret_cast<uint4*>(piece_at(tile, to, index % PIECES)) = reinterpret_cast<const uint4*>(rows)[index];
    }
    __syncwarp();
}

// A warp's pages of a split, every SPLIT_WARPS-th. `seen`: how many keys each of the two queries of a lane sees.
template <int NEW>
__device__ inline void attend(Weighted& weighted, SplitMemory<NEW>& shared, const Pages& pages, const Split& split,
                              const Fresh& fresh, const int (&seen)[2], float scale) {
    auto& memory = shared.page[warp_index()];
    Queries queries;
    queries.load(shared.q);
    int column = lane_index() % 4 * 2;
    for (int page = split.first + warp_index(); page < split.end; page += SPLIT_WARPS) {
        int next = page + SPLIT_WARPS, key = page * PAGE + column, at = fresh.first - page * PAGE;
        bool has_fresh = fresh.which != 0 && at < PAGE && at > -NEW;
        const bf16* coming = next < split.end ? pages.keys_of(next) : nullptr;
        wait_for_copies<1>();
        __syncwarp();
        if (has_fresh) replace_rows<NEW>(memory.keys, at, shared.keys, fresh.which);
        float s[PAGE / 8][4];
        score<PAGE>(s, queries, memory.keys);
        __syncwarp();
        if (coming) load_page(memory.keys, coming, pages.valid(next));
        else commit_copies();
#pragma unroll
        for (int n = 0; n < PAGE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[n][i] = key + n * 8 + i % 2 < seen[i / 2] ? s[n][i] * scale : -CUDART_INF_F;
        weighted.soften<PAGE>(s);
        wait_for_copies<1>();
        __syncwarp();
        if (has_fresh) replace_rows<NEW>(memory.values, at, shared.values, fresh.which);
        weighted.add<PAGE>(s, memory.values);
        __syncwarp();
        if (coming) load_page(memory.values, coming + pages.pool.values_offset(), pages.valid(next));
        else commit_copies();
    }
}

// Where element d of a query's sum lies in its row: eights are shuffled so that eight rows' pairs of one column lie in
// different banks.
__device__ inline int spread(int query, int d) { return d ^ query % 8 * 8; }

// The warps' sums of `count` queries as one, relative to the largest score among them.
template <int NEW>
__device__ inline void store_partial(SplitMemory<NEW>& shared, const Weighted& weighted, float* sums, float* weights,
                                     int count) {
    int row = lane_index() / 4, column = lane_index() % 4 * 2, warp = warp_index();
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = weighted.whole_total(half);
        int at = row + half * 8;
        if (at >= count) continue;
#pragma unroll
        for (int n = 0; n < HEAD_DIM / 8; n++)
            *reinterpret_cast<float2*>(&shared.sum[warp][at][spread(at, n * 8 + column)]) =
                make_float2(weighted.sum[n][2 * half], weighted.sum[n][2 * half + 1]);
        if (column == 0) shared.top[warp][at] = weighted.top[half], shared.total[warp][at] = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * HEAD_DIM; i += SPLIT_THREADS) {
        int at = i / HEAD_DIM, d = i % HEAD_DIM;
        float top = shared.top[0][at], sum = 0.0f, total = 0.0f;
#pragma unroll
        for (int w = 1; w < SPLIT_WARPS; w++) top = fmaxf(top, shared.top[w][at]);
        float base = top == -CUDART_INF_F ? 0.0f : top;  // a query that sees no key of this split
#pragma unroll
        for (int w = 0; w < SPLIT_WARPS; w++) {
            float factor = exp2f(shared.top[w][at] - base);  // 0 for a warp that had no page
            sum += shared.sum[w][at][spread(at, d)] * factor;
            total += shared.total[w][at] * factor;
        }
        sums[static_cast<i64>(at) * SPLITS * HEAD_DIM + d] = sum;
        if (d < 2) weights[at * SPLITS * 2 + d] = d == 0 ? top : total;
    }
}

// The parts of one query from the splits in use as one: [SPLITS, HEAD_DIM] sums, [SPLITS, top and total]; a
// thread per element.
__device__ inline void combine(bf16* out, const float* sums, const float* weights, int in_use) {
    float top = -CUDART_INF_F, part[SPLITS], tops[SPLITS], totals[SPLITS];
#pragma unroll
    for (int i = 0; i < SPLITS; i++) {
        bool used = i < in_use;
        part[i] = used ? __ldcg(sums + i * HEAD_DIM + threadIdx.x) : 0.0f;
        float2 top_and_total = used ? __ldcg(reinterpret_cast<const float2*>(weights) + i) : float2{-CUDART_INF_F, 0.0f};
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
    out[threadIdx.x] = __float2bfloat16(total == 0.0f ? 0.0f : sum / total);
}
