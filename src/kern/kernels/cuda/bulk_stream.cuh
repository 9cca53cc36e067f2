// The stream of a block's weights by bulk copies: one warp asks for them as far ahead as the ring has room, from the
// kernel's first moment on, and the others multiply.
#pragma once
#include "bulk.cuh"
#include "cluster.cuh"
#include "matvec.cuh"

// A slot of the ring holds a tile's rows: whole, as they lie in memory, so that one copy brings them, or a slice along
// K of them, a copy per row. Each copy occupies the copy engine for a while, so they have to be large.
// Where SPLIT is 2, two blocks have the same columns and half of K each (split_depth.cuh).
template <int K, int PARTS, int SPLIT>
struct BulkStream {
    static constexpr int PITCH = K, DEPTH = K / SPLIT;
    using Memory = Shared<DEPTH, PARTS>;
    static constexpr int PAIRS = PARTS - 1;
    static constexpr int CHUNKS = DEPTH / CHUNK;
    static constexpr int SLOT_BYTES = MATVEC_SLOT_BYTES < Memory::RING / 4 ? MATVEC_SLOT_BYTES : Memory::RING / 4;
    static constexpr int MOST = SLOT_BYTES / (TILE * CHUNK * 2);
    static constexpr bool WHOLE = SPLIT == 1 && CHUNKS <= MOST;
    static constexpr int SLICES = WHOLE ? 1 : ceil_div(CHUNKS, MOST / MATVEC_WARPS * MATVEC_WARPS);
    // Chunks of a slice: slices of about equal size, a whole number of steps each.
    static constexpr int SLICE = WHOLE ? CHUNKS : ceil_div(ceil_div(CHUNKS, SLICES), MATVEC_WARPS) * MATVEC_WARPS;
    // With an odd number of chunks from row to row neighbours lie in different banks. Where whole rows have an even
    // number, every other row's lanes take the two chunks of a pair in the other order.
    static constexpr bool CROSSED = WHOLE && SLICE % 2 == 0;
    static constexpr int STEPS = CROSSED ? 2 * ceil_div(SLICE, 2 * MATVEC_WARPS) : ceil_div(SLICE, MATVEC_WARPS);
    static constexpr int TILE_STEPS = WHOLE ? STEPS : ceil_div(CHUNKS, MATVEC_WARPS);
    static constexpr bool EVEN = CHUNKS == TILE_STEPS * MATVEC_WARPS;
    static constexpr int STRIDE = (WHOLE ? SLICE : SLICE + 1) * CHUNK;
    static constexpr int FITTING = Memory::RING / (TILE * STRIDE * 2);
    static constexpr int SLOTS = FITTING < MAX_SLOTS ? FITTING : MAX_SLOTS;
    static_assert(DEPTH % CHUNK == 0, "rows of whole chunks");
    static_assert(SLOTS < MAX_SLOTS || SPLIT == 1, "barriers to meet at");
    static_assert(MOST >= MATVEC_WARPS, "a chunk for every warp in a slot");
    static_assert(SLOTS >= 2, "one slot on its way while another is worked on");

    Memory& shared;
    const bf16* w;
    i64 half;  // elements from a row to the other of its pair
    Outputs outputs;
    int slot = 0;
    u32 parity = 0;

    __device__ BulkStream(Memory& shared, const bf16* w, int n)
        : shared(shared), w(w + first()), half(static_cast<i64>(n) * K), outputs(n, SPLIT) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < SLOTS; i++) {
                init_barrier(&shared.full[i], 1);
                init_barrier(&shared.empty[i], MATVEC_WARPS);
            }
            if constexpr (SPLIT > 1) init_barrier(&shared.met(), 1), init_barrier(&shared.read(), 1);
            publish_barriers();
        }
        if constexpr (SPLIT > 1) sync_cluster();
        else __syncthreads();
    }

    // Where this block's part of K begins.
    __device__ static int first() { return SPLIT > 1 ? rank_in_cluster() * DEPTH : 0; }

    __device__ bf16* row_of_slot(int row) const {
        return reinterpret_cast<bf16*>(shared.ring) + (slot * TILE + row) * STRIDE;
    }

    __device__ void advance() {
        if (++slot < SLOTS) return;
        slot = 0;
        parity ^= 1;
    }

    // Chunks `first` to `first + count` of `rows` rows on their way to the slot.
    __device__ void ask(const bf16* from, int rows, int first, int count) {
        u64* full = &shared.full[slot];
        u32 bytes = count * CHUNK * 2;
        arrive_and_expect(full, rows * bytes);
        if (WHOLE) {
            copy_bulk(row_of_slot(0), from, rows * bytes, full);
        } else {
#pragma unroll
            for (int row = 0; row < TILE; row++)
                if (row < rows) copy_bulk(row_of_slot(row), from + row * K + first * CHUNK, bytes, full);
        }
    }

    // As the warp behind those that multiply, ask for everything; whether this is that warp, which is then done.
    __device__ bool produce() {
        if (warp_index() < MATVEC_WARPS) return false;
        for (int tile = 0; tile < outputs.tiles; tile++) {
            int begin = outputs.begin(tile), rows = outputs.begin(tile + 1) - begin;
            const bf16* from = w + static_cast<i64>(begin) * K;
            for (int first = 0; first < CHUNKS; first += SLICE) {
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    wait_for(&shared.empty[slot], parity ^ 1);
                    if (elected()) ask(from + part * half, rows, first, min(SLICE, CHUNKS - first));
                    advance();
                }
            }
        }
        return true;
    }

    // The chunk of K that this warp takes as its `step`-th of a tile, and whether there is one. Where rows are crossed,
    // those of two steps are a pair of neighbours.
    __device__ static int chunk(int step) {
        if (!CROSSED) return step * MATVEC_WARPS + warp_index();
        return (step / 2 * MATVEC_WARPS + warp_index()) * 2 + step % 2;
    }
    __device__ static bool has(int step) { return step < TILE_STEPS && (EVEN || chunk(step) < CHUNKS); }

    // This warp's part of the next tile, whose sums have place `at`.
    template <class X>
    __device__ void multiply(int at, const X& x) {
        Sums sums[PARTS];
        int row = lane_index() / 4, within = lane_index() % 4 * LANE_K, crossed = CROSSED ? row % 2 : 0;
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++) {
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                wait_for(&shared.full[slot], parity);
                uint4 v[STEPS];
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    if (!has(slice * STEPS + step)) continue;
                    int k = chunk(step) * CHUNK + within;  // of the slice
                    v[step] = *reinterpret_cast<const uint4*>(row_of_slot(row) + (k ^ crossed * CHUNK));
                }
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    if (!has(slice * STEPS + step)) continue;
                    uint4 weights = v[step];
                    if constexpr (CROSSED) weights = crossed ? v[step ^ 1] : weights;
                    sums[part].add(weights, x.at(slice * STEPS + step));
                }
                __syncwarp();
                if (lane_index() == 0) arrive(&shared.empty[slot]);
                advance();
            }
        }
        shared.keep(at, sums);
    }
};
