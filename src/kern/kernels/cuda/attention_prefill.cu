// Causal attention of a chunk of tokens over the paged pool (Dao 2023, "FlashAttention-2"): a block takes 64 queries that
// share a key head, 16 per warp, and walks over the keys in tiles of 64; one tile is loaded while the one before is
// worked on. All query heads of a key head are in one block, so that single tokens of many sequences read keys once.
#include "attention.cuh"

constexpr int PREFILL_WARPS = 4;
constexpr int BLOCK_QUERIES = PREFILL_WARPS * QUERIES;
constexpr int BLOCK_TOKENS = BLOCK_QUERIES / GROUP;
constexpr int TILE_KEYS = 64;
constexpr int PREFILL_THREADS = PREFILL_WARPS * WARP;

struct PrefillMemory {
    bf16 q[BLOCK_QUERIES * HEAD_DIM];
    union {
        struct {
            bf16 keys[2][TILE_KEYS * HEAD_DIM], values[2][TILE_KEYS * HEAD_DIM];
        };
        struct {  // of a block whose warps share the keys, once the tiles are done with
            float sum[PREFILL_WARPS][QUERIES][HEAD_DIM];
            float top[PREFILL_WARPS][QUERIES], total[PREFILL_WARPS][QUERIES];
        };
    };
};

// The tokens of a block: `count` of one sequence from `token` on, the first at `position`; a token has GROUP queries.
struct QueryBlock {
    int seq, token, count, position;

    // The block's part of the sequences; the last parts of a sequence, which see the most keys, come first. Every lane
    // looks at one sequence of 32.
    __device__ static QueryBlock find(const int* cu_seqlens_q, const int* seq_lens, int seqs) {
        int block = blockIdx.y, lane = lane_index();
        for (int base = 0; base < seqs; base += WARP) {
            int seq = base + lane, begin = seq < seqs ? cu_seqlens_q[seq] : 0;
            int tokens = seq < seqs ? cu_seqlens_q[seq + 1] - begin : 0, blocks = ceil_div(tokens, BLOCK_TOKENS);
            int end = blocks;
#pragma unroll
            for (int offset = 1; offset < WARP; offset *= 2) {
                int before = __shfl_up_sync(ALL_LANES, end, offset);
                if (lane >= offset) end += before;
            }
            u32 later = __ballot_sync(ALL_LANES, block < end);
            if (later == 0) {
                block -= __shfl_sync(ALL_LANES, end, WARP - 1);
                continue;
            }
            int first = (end - 1 - block) * BLOCK_TOKENS, own = __ffs(later) - 1;
            int position = seq < seqs ? seq_lens[seq] - tokens + first : 0;
            return {base + own, __shfl_sync(ALL_LANES, begin + first, own),
                    __shfl_sync(ALL_LANES, min(BLOCK_TOKENS, tokens - first), own),
                    __shfl_sync(ALL_LANES, position, own)};
        }
        return {0, 0, 0, 0};
    }

    __device__ int rows() const { return count * GROUP; }
    // Where row `row` of the block lies in rows of `width` elements.
    __device__ i64 at(int row, int head, int width) const {
        return static_cast<i64>(token + row / GROUP) * width + (head * GROUP + row % GROUP) * HEAD_DIM;
    }
};

struct KeyTiles {
    Pool pool;
    const int* table;  // of the sequence
    int head, keys;

    // Tile `index` on its way into shared memory; what lies past the last key is zero.
    __device__ void load(bf16* keys_to, bf16* values_to, int index) const {
#pragma unroll
        for (int i = 0; i < TILE_KEYS * PIECES / PREFILL_THREADS; i++) {
            int at = i * PREFILL_THREADS + threadIdx.x, row = at / PIECES, piece = at % PIECES;
            int key = index * TILE_KEYS + row;
            bool valid = key < keys;
            const bf16* page = valid ? pool.keys(table[key / PAGE], head) : pool.base;
            const bf16* from = page + key % PAGE * HEAD_DIM + piece * PIECE;
            copy_async(piece_at(keys_to, row, piece), from, valid);
            copy_async(piece_at(values_to, row, piece), valid ? from + pool.values_offset() : from, valid);
        }
        commit_copies();
    }
};

__device__ static void load_queries(bf16* tile, const bf16* q, const QueryBlock& block, int head, int row_stride) {
#pragma unroll
    for (int i = 0; i < BLOCK_QUERIES * PIECES / PREFILL_THREADS; i++) {
        int at = i * PREFILL_THREADS + threadIdx.x, row = at / PIECES, piece = at % PIECES;
        bool valid = row < block.rows();
        const bf16* from = q + block.at(valid ? row : 0, head, row_stride) + piece * PIECE;
        copy_async(piece_at(tile, row, piece), from, valid);
    }
    commit_copies();
}

// Take in KEYS keys from `first_key` on, and their values. `seen`: how many keys each of a lane's two queries sees.
template <int KEYS>
__device__ inline void take(Weighted& weighted, const Queries& queries, bf16* keys, bf16* values, float scale,
                            int first_key, const int (&seen)[2]) {
    int column = first_key + lane_index() % 4 * 2;
    float s[KEYS / 8][4];
    score<KEYS>(s, queries, keys);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)  // scores in powers of two
            s[n][i] = column + n * 8 + i % 2 < seen[i / 2] ? s[n][i] * scale : -CUDART_INF_F;
    weighted.soften<KEYS>(s);
    weighted.add<KEYS>(s, values);
}

__device__ static void store_rows(bf16* out, const Weighted& w, const QueryBlock& block, int head, int row, int width) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = w.whole_total(half), scale = total == 0.0f ? 0.0f : 1.0f / total;  // no keys: zeros
        if (row + half * 8 >= block.rows()) continue;
        bf16* to = out + block.at(row + half * 8, head, width) + lane_index() % 4 * 2;
#pragma unroll
        for (int n = 0; n < HEAD_DIM / 8; n++)
            *reinterpret_cast<__nv_bfloat162*>(to + n * 8) =
                __floats2bfloat162_rn(w.sum[n][2 * half] * scale, w.sum[n][2 * half + 1] * scale);
    }
}

// Where the warps have shared the keys of the same queries: their sums as one.
__device__ static void store_shared(PrefillMemory& shared, bf16* out, const Weighted& w, const QueryBlock& block,
                                    int head, int width) {
    int row = lane_index() / 4, column = lane_index() % 4 * 2, warp = warp_index();
    wait_for_copies<0>();
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = w.whole_total(half);
        int at = row + half * 8;
        if (at >= block.rows()) continue;
#pragma unroll
        for (int n = 0; n < HEAD_DIM / 8; n++)
            *reinterpret_cast<float2*>(&shared.sum[warp][at][n * 8 + column]) =
                make_float2(w.sum[n][2 * half], w.sum[n][2 * half + 1]);
        if (column == 0) shared.top[warp][at] = w.top[half], shared.total[warp][at] = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < block.rows() * HEAD_DIM; i += PREFILL_THREADS) {
        int at = i / HEAD_DIM, d = i % HEAD_DIM;
        float top = -CUDART_INF_F, sum = 0.0f, total = 0.0f;
#pragma unroll
        for (int from = 0; from < PREFILL_WARPS; from++) top = fmaxf(top, shared.top[from][at]);
        float base = top == -CUDART_INF_F ? 0.0f : top;  // no keys
#pragma unroll
        for (int from = 0; from < PREFILL_WARPS; from++) {
            float factor = exp2f(shared.top[from][at] - base);  // 0 for a warp that saw no key
            sum += shared.sum[from][at][d] * factor;
            total += shared.total[from][at] * factor;
        }
        out[block.at(at, head, width) + d] = __float2bfloat16(total == 0.0f ? 0.0f : sum / total);
    }
}

KERNEL(PREFILL_THREADS, 2)
attention_prefill(bf16* out, const bf16* q, bf16* pool, const int* block_table, const int* seq_lens,
                  const int* cu_seqlens_q, int seqs, int pages, int q_heads, int kv_heads, int dim, int row_stride,
                  i64 page_stride, float scale) {
    expect(dim, HEAD_DIM);
    expect(q_heads, GROUP * kv_heads);
    extern __shared__ __align__(128) char memory[];
    auto& shared = *reinterpret_cast<PrefillMemory*>(memory);
    QueryBlock block = QueryBlock::find(cu_seqlens_q, seq_lens, seqs);
    if (block.count == 0) return;
    int head = blockIdx.x, keys = min(block.position + block.count, pages * PAGE);
    KeyTiles tiles{{pool, page_stride, kv_heads}, block_table + static_cast<i64>(block.seq) * pages, head, keys};
    load_queries(shared.q, q, block, head, row_stride);
    tiles.load(shared.keys[0], shared.values[0], 0);

    // The queries of a single token are of one warp: the warps then share the keys of each tile.
    bool shares = block.rows() <= QUERIES;
    int first = shares ? 0 : warp_index() * QUERIES, row = first + lane_index() / 4;
    int seen[2] = {min(block.position + row / GROUP + 1, keys), min(block.position + (row + 8) / GROUP + 1, keys)};
    Queries queries;
    Weighted weighted;
    weighted.clear();
    wait_for_copies<1>();
    __syncthreads();
    queries.load(shared.q + first * HEAD_DIM);
    int count = ceil_div(keys, TILE_KEYS);
    for (int i = 0; i < count; i++) {
        wait_for_copies<0>();
        __syncthreads();
        if (i + 1 < count) tiles.load(shared.keys[(i + 1) % 2], shared.values[(i + 1) % 2], i + 1);
        if (shares) {
            int from = warp_index() * QUERIES;
            take<QUERIES>(weighted, queries, shared.keys[i % 2] + from * HEAD_DIM, shared.values[i % 2] + from * HEAD_DIM,
                          scale * LOG2_E, i * TILE_KEYS + from, seen);
        } else if (first < block.rows()) {
            take<TILE_KEYS>(weighted, queries, shared.keys[i % 2], shared.values[i % 2], scale * LOG2_E, i * TILE_KEYS,
                            seen);
        }
    }
    if (shares) store_shared(shared, out, weighted, block, head, q_heads * HEAD_DIM);
    else store_rows(out, weighted, block, head, row, q_heads * HEAD_DIM);
}
