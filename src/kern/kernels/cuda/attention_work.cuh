// How attention of one token per sequence is divided: each sequence's pages into parts, by its own length alone, so that
// its sums are the same whatever else is in the call; and the parts of all sequences over the blocks, by their cost.
#pragma once
#include "kernel.cuh"
#include "pages.cuh"


constexpr int TOKEN_THREADS = TOKEN_WARPS * WARP;
constexpr int MOST_SEQUENCES = 256;
constexpr int THREAD_SEQUENCES = ceil_div(MOST_SEQUENCES, TOKEN_THREADS);

// The pages of a sequence in parts, each of whole rounds of a page for every warp.
struct Parts {
    int keys, pages, share, count;

    Parts() = default;
    __device__ Parts(int length, int table_pages) {
        keys = min(length, table_pages * PAGE);
        pages = ceil_div(keys, PAGE);
        int least = pages <= 8 * TOKEN_WARPS ? 2 : 3;
        share = TOKEN_WARPS * max(least, ceil_div(pages, TOKEN_WARPS * TOKEN_PARTS));
        count = max(1, ceil_div(pages, share));
    }

    // Of one part, in pages: what it loads, and what it takes to begin and to end it.
    __device__ float cost() const { return static_cast<float>(ceil_div(pages, count) + 4); }
};

// What the warps of a block tell each other of the sequences that they look after.
struct WorkMemory {
    float cost[TOKEN_WARPS];
    int count[TOKEN_WARPS], left[TOKEN_WARPS], seq[TOKEN_WARPS], part[TOKEN_WARPS], length[TOKEN_WARPS];
};

// What the blocks of a group, one for each key head, work on: `left` parts, from part `part` of sequence `seq` on.
// The heads of a page are next to each other in memory, and are read at about the same time.
struct Work {
    int seq, part, left, length;

    // Where group `group` begins; rounded the same way wherever it is computed.
    __device__ static float boundary(int group, int groups, float total) {
        return group < groups ? __fdiv_rn(__fmul_rn(group, total), groups) : CUDART_INF_F;
    }

    // How many of a sequence's parts have their middle before `at`.
    __device__ static int parts_before(float at, float begin, float cost, int count) {
        return min(max(__float2int_ru(__fsub_rn(__fdiv_rn(__fsub_rn(at, begin), cost), 0.5f)), 0), count);
    }

    __device__ Work(WorkMemory& shared, const int* seq_lens, int seqs, int table_pages, int kv_heads)
        : seq(0), part(0), left(0), length(0) {
        if (seqs > MOST_SEQUENCES) __trap();
        int group = blockIdx.x / kv_heads, groups = gridDim.x / kv_heads, lane = lane_index(), warp = warp_index();
        if (seqs == 1) {
            length = load_fresh<int>(seq_lens);
            int count = Parts(length, table_pages).count;
            if (count <= groups) {
                part = group, left = group < count ? 1 : 0;
                return;
            }
        }
        int lengths[THREAD_SEQUENCES], counts[THREAD_SEQUENCES], count = 0;
        float costs[THREAD_SEQUENCES], end = 0.0f;
#pragma unroll
        for (int i = 0; i < THREAD_SEQUENCES; i++) {
            int at = threadIdx.x * THREAD_SEQUENCES + i;
            lengths[i] = at < seqs ? load_fresh<int>(seq_lens + at) : 0;
            Parts parts(lengths[i], table_pages);
            counts[i] = at < seqs ? parts.count : 0, costs[i] = parts.cost();
            count += counts[i], end += counts[i] * costs[i];
        }
        float begin = -end;
#pragma unroll
        for (int offset = 1; offset < WARP; offset *= 2) {
            float before = __shfl_up_sync(ALL_LANES, end, offset);
            count += __shfl_xor_sync(ALL_LANES, count, offset);
            if (lane >= offset) end += before;
        }
        begin += end;
        if (lane == WARP - 1) shared.cost[warp] = end, shared.count[warp] = count;
        __syncthreads();
        float total = 0.0f;
        count = 0;
#pragma unroll
        for (int w = 0; w < TOKEN_WARPS; w++) {
            if (w == warp) begin += total;
            total += shared.cost[w], count += shared.count[w];
        }
        groups = min(max(count, MATVEC_BLOCKS / kv_heads), groups);
        float from = boundary(group, groups, total), to = boundary(group + 1, groups, total);
        int first = -1, own = 0;
#pragma unroll
        for (int i = 0; i < THREAD_SEQUENCES; i++) {
            int before = parts_before(from, begin, costs[i], counts[i]);
            own += parts_before(to, begin, costs[i], counts[i]) - before;
            if (first < 0 && before < counts[i])
                first = threadIdx.x * THREAD_SEQUENCES + i, part = before, length = lengths[i];
            begin += counts[i] * costs[i];
        }
        own = warp_sum(own);
        u32 rest = __ballot_sync(ALL_LANES, first >= 0);
        if (lane == (rest != 0 ? __ffs(rest) - 1 : 0)) {
            shared.left[warp] = own, shared.seq[warp] = first;
            shared.part[warp] = part, shared.length[warp] = length;
        }
        __syncthreads();
#pragma unroll
        for (int w = TOKEN_WARPS - 1; w >= 0; w--) {
            left += shared.left[w];
            if (shared.seq[w] >= 0) seq = shared.seq[w], part = shared.part[w], length = shared.length[w];
        }
    }
};
