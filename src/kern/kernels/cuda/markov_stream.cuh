// The rows of a Markov head's matrix that a block multiplies, as they stream through a ring in its shared memory.
#pragma once
#include "bulk.cuh"
#include "matvec.cuh"

constexpr int RANK = MARKOV_RANK, CHUNKS = RANK / CHUNK, SLOTS = MARKOV_SLOTS;
constexpr int KEPT_EVERY = MARKOV_KEPT_EVERY;  // of a block's slots, that the L2 keeps for the next step of the chain
constexpr int SLOT_ROWS = MATVEC_WARPS * TILE;  // a slot has a tile for each warp
constexpr int PIECES = SLOT_ROWS * CHUNKS * CHUNK / LANE_K;  // of 16 bytes, in a slot
static_assert(RANK % CHUNK == 0, "rows of whole chunks");
static_assert(SLOTS >= 2, "one slot on its way while another is worked on");

// The rows of the matrix that a block multiplies, in whole tiles.
struct Range {
    int first, count, turns;

    __device__ explicit Range(int rows) {
        int share = ceil_div(ceil_div(rows, TILE), static_cast<int>(gridDim.x)) * TILE;
        first = min(static_cast<int>(blockIdx.x) * share, rows);
        count = min(share, rows - first);
        turns = ceil_div(count, SLOT_ROWS);
    }
};

__device__ static uint4* ring() {
    extern __shared__ __align__(128) char memory[];
    return reinterpret_cast<uint4*>(memory);
}

#if MATVEC_BULK
// One warp asks for each slot's rows, as they lie in memory, by one copy.
struct MatrixStream {
    static constexpr int BLOCK = THREADS + WARP;
    // Where rows have an even number of chunks, every other row's lanes take the two chunks of a pair in the other order,
    // so that neighbours lie in different banks.
    static constexpr bool CROSSED = CHUNKS % 2 == 0;

    const bf16* from;
    const Range& range;
    u64 *full, *empty;
    int slot = 0;
    u32 parity = 0;

    __device__ MatrixStream(const bf16* matrix, const Range& range)
        : from(matrix + static_cast<i64>(range.first) * RANK), range(range) {
        __shared__ u64 barriers[2][SLOTS];
        full = barriers[0], empty = barriers[1];
        if (threadIdx.x == 0) {
            for (int i = 0; i < SLOTS; i++) {
                init_barrier(&full[i], 1);
                init_barrier(&empty[i], MATVEC_WARPS);
            }
            publish_barriers();
        }
        __syncthreads();
    }

    __device__ void advance() {
        if (++slot < SLOTS) return;
        slot = 0;
        parity ^= 1;
    }

    // As the warp behind those that multiply, ask for everything; whether this is that warp, which is then done.
    __device__ bool produce() {
        if (warp_index() < MATVEC_WARPS) return false;
        for (int turn = 0; turn < range.turns; turn++) {
            int begin = turn * SLOT_ROWS;
            u32 bytes = min(SLOT_ROWS, range.count - begin) * RANK * sizeof(bf16);
            wait_for(&empty[slot], parity ^ 1);
            if (elected()) {
                arrive_and_expect(&full[slot], bytes);
                void* to = ring() + slot * PIECES;
                const bf16* rows = from + static_cast<i64>(begin) * RANK;
                if (turn % KEPT_EVERY == 0) copy_bulk(to, rows, bytes, &full[slot]);
                else copy_bulk_once(to, rows, bytes, &full[slot]);
            }
            advance();
        }
        return true;
    }

    // This lane's pieces of its row of the next slot, a chunk each.
    __device__ void take(uint4 (&weights)[CHUNKS]) {
        int row = lane_index() / 4, crossed = CROSSED ? row % 2 : 0;
        const uint4* at = ring() + slot * PIECES + (warp_index() * TILE + row) * CHUNKS * 4 + lane_index() % 4;
        wait_for(&full[slot], parity);
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            weights[chunk] = at[chunk * 4 + (chunk % 2 ? -crossed : crossed) * 4];
        if constexpr (CROSSED) {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk += 2) {
                uint4 even = weights[chunk], odd = weights[chunk + 1];
                weights[chunk] = crossed ? odd : even;
                weights[chunk + 1] = crossed ? even : odd;
            }
        }
    }

    // The slot is free. The copy that fills it again is not ordered after this warp's loads, which may still wait in its
    // queue; so the barrier's address, which does not change, depends on the `product` of all that was loaded.
    __device__ void release(float product) {
        int never = __float_as_int(product) & range.turns >> 31;
        __syncwarp();
        if (lane_index() == 0) arrive(&empty[slot] + never);
        advance();
    }
};
#else
// Each lane copies what it will use itself, so it waits for nobody else.
struct MatrixStream {
    static constexpr int BLOCK = THREADS;

    const bf16* from;
    const Range& range;
    int slot = 0, next = 0;  // to be used, and filled again; the turn to be loaded into it

    __device__ MatrixStream(const bf16* matrix, const Range& range)
        : from(matrix + static_cast<i64>(range.first) * RANK), range(range) {}

    __device__ uint4& piece(int chunk) const { return ring()[slot * PIECES + chunk * THREADS + threadIdx.x]; }

    // The next turn's rows on their way; an empty group keeps the count of groups.
    __device__ void load() {
        int row = next * SLOT_ROWS + warp_index() * TILE + lane_index() / 4;
        bool valid = row < range.count;
        const bf16* at = from + (valid ? static_cast<i64>(row) * RANK + lane_index() % 4 * LANE_K : 0);
        if (next < range.turns) {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) copy_async(&piece(chunk), at + chunk * CHUNK, valid);
        }
        commit_copies();
        next++;
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
    }

    __device__ bool produce() {
#pragma unroll 1
        for (int i = 0; i < SLOTS; i++) load();
        return false;
    }

    // This lane's pieces of its row of the next slot, a chunk each.
    __device__ void take(uint4 (&weights)[CHUNKS]) {
        wait_for_copies<SLOTS - 1>();
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) weights[chunk] = piece(chunk);
    }

    __device__ void release(float) { load(); }
};
#endif
