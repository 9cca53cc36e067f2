// Causal attention of a chunk of tokens over the paged pool (Dao 2023, "FlashAttention-2"): a block takes 64 queries of
// one head, 16 per warp, and walks over the keys in tiles of 64; one tile is loaded while the one before is worked on.
#include "attention.cuh"

constexpr int PREFILL_WARPS = 4;
constexpr int BLOCK_QUERIES = PREFILL_WARPS * QUERIES;
constexpr int TILE_KEYS = 64;
constexpr int PREFILL_THREADS = PREFILL_WARPS * WARP;

struct PrefillMemory {
    bf16 q[BLOCK_QUERIES * HEAD_DIM];
    bf16 keys[2][TILE_KEYS * HEAD_DIM], values[2][TILE_KEYS * HEAD_DIM];
};

// The queries of a block: `count` tokens of one sequence from `token` on, the first at `position`.
struct QueryBlock {
    int seq, token, count, position;

    // The block's part of the sequences; the last parts of a sequence, which see the most keys, come first.
    __device__ static QueryBlock find(const int* cu_seqlens_q, const int* seq_lens, int seqs) {
        int block = blockIdx.x;
        for (int seq = 0; seq < seqs; seq++) {
            int begin = cu_seqlens_q[seq], tokens = cu_seqlens_q[seq + 1] - begin;
            int blocks = ceil_div(tokens, BLOCK_QUERIES);
            if (block < blocks) {
                int first = (blocks - 1 - block) * BLOCK_QUERIES;
                int count = min(BLOCK_QUERIES, tokens - first);
                return {seq, begin + first, count, seq_lens[seq] - tokens + first};
            }
            block -= blocks;
        }
        return {0, 0, 0, 0};
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

__device__ static void load_queries(bf16* tile, const bf16* q, const QueryBlock& block, int row_stride) {
#pragma unroll
    for (int i = 0; i < BLOCK_QUERIES * PIECES / PREFILL_THREADS; i++) {
        int at = i * PREFILL_THREADS + threadIdx.x, row = at / PIECES, piece = at % PIECES;
        bool valid = row < block.count;
        const bf16* from = q + static_cast<i64>(block.token + (valid ? row : 0)) * row_stride + piece * PIECE;
        copy_async(piece_at(tile, row, piece), from, valid);
    }
    commit_copies();
}

// Scores in powers of two; -inf for keys after the query and for those that are not there.
__device__ static void scale_and_mask(float (&s)[TILE_KEYS / 8][4], float scale, int first_key, int position, int keys) {
    int column = lane_index() % 4 * 2;
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = first_key + n * 8 + column + i % 2, seen = min(position + i / 2 * 8 + 1, keys);
            s[n][i] = key < seen ? s[n][i] * scale : -CUDART_INF_F;
        }
}

__device__ static void store_rows(bf16* out, const Weighted& w, int row, int count, int width) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = w.whole_total(half), scale = total == 0.0f ? 0.0f : 1.0f / total;  // no keys: zeros
        if (row + half * 8 >= count) continue;
        bf16* to = out + static_cast<i64>(row + half * 8) * width + lane_index() % 4 * 2;
#pragma unroll
        for (int n = 0; n < HEAD_DIM / 8; n++)
            *reinterpret_cast<__nv_bfloat162*>(to + n * 8) =
                __floats2bfloat162_rn(w.sum[n][2 * half] * scale, w.sum[n][2 * half + 1] * scale);
    }
}

KERNEL(PREFILL_THREADS, 2)
attention_prefill(bf16* out, const bf16* q, bf16* pool, const int* block_table, const int* seq_lens,
                  const int* cu_seqlens_q, int seqs, int pages, int q_heads, int kv_heads, int dim, int row_stride,
                  i64 page_stride, float scale) {
    expect(dim, HEAD_DIM);
    extern __shared__ __align__(128) char memory[];
    auto& shared = *reinterpret_cast<PrefillMemory*>(memory);
    QueryBlock block = QueryBlock::find(cu_seqlens_q, seq_lens, seqs);
    if (block.count == 0) return;
    int head = blockIdx.y, keys = min(block.position + block.count, pages * PAGE);
    KeyTiles tiles{{pool, page_stride, kv_heads}, block_table + static_cast<i64>(block.seq) * pages,
                   head / (q_heads / kv_heads), keys};
    load_queries(shared.q, q + head * HEAD_DIM, block, row_stride);
    tiles.load(shared.keys[0], shared.values[0], 0);

    int row = warp_index() * QUERIES + lane_index() / 4, position = block.position + row;
    Queries queries;
    Weighted weighted;
    weighted.clear();
    wait_for_copies<1>();
    __syncthreads();
    queries.load(shared.q + warp_index() * QUERIES * HEAD_DIM);
    int count = ceil_div(keys, TILE_KEYS);
    for (int i = 0; i < count; i++) {
        wait_for_copies<0>();
        __syncthreads();
        if (i + 1 < count) tiles.load(shared.keys[(i + 1) % 2], shared.values[(i + 1) % 2], i + 1);
        float s[TILE_KEYS / 8][4];
        score<TILE_KEYS>(s, queries, shared.keys[i % 2]);
        scale_and_mask(s, scale * LOG2_E, i * TILE_KEYS, position, keys);
        weighted.soften<TILE_KEYS>(s);
        weighted.add<TILE_KEYS>(s, shared.values[i % 2]);
    }
    bf16* to = out + (static_cast<i64>(block.token) * q_heads + head) * HEAD_DIM;
    store_rows(to, weighted, row, block.count, q_heads * HEAD_DIM);
}
