// The stream of a block's weights by bulk copies: one warp asks for them as far ahead as the ring has room, from the
// kernel's first moment on, and the others multiply.
#pragma once
#include "bulk.cuh"
#include "matvec.cuh"

// A slot of the ring holds a slice along K of a tile's rows.
template <int K, int PARTS>
struct BulkStream {
    using Memory = Shared<K, PARTS>;
    static constexpr int PAIRS = PARTS - 1;
    static constexpr int CHUNKS = K / CHUNK;
    static constexpr int MOST = MATVEC_SLOT_BYTES / (TILE * CHUNK * 2);
    static constexpr int SLICE = ceil_div(CHUNKS, ceil_div(CHUNKS, MOST));  // chunks of it, of about equal slices
    static constexpr int SLICES = ceil_div(CHUNKS, SLICE);
    static constexpr int STEPS = ceil_div(SLICE, MATVEC_WARPS);
    static constexpr bool EVEN = CHUNKS == SLICES * STEPS * MATVEC_WARPS;
    // An odd number of chunks from row to row: neighbours then lie in different banks.
    static constexpr int STRIDE = (SLICE + 1 - SLICE % 2) * CHUNK;
    static constexpr int FITTING = MATVEC_RING_BYTES / (TILE * STRIDE * 2);
    static constexpr int SLOTS = FITTING < MAX_SLOTS ? FITTING : MAX_SLOTS;
    static_assert(SLOTS >= 2, "one slot on its way while another is worked on");

    Memory& shared;
    const bf16* w;
    i64 half;  // elements from a row to the other of its pair
    Outputs outputs;
    int slot = 0;
    u32 parity = 0;

    __device__ BulkStream(Memory& shared, const bf16* w, int n)
        : shared(shared), w(w), half(static_cast<i64>(n) * K), outputs(n) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < SLOTS; i++) {
                init_barrier(&shared.full[i], 1);
                init_barrier(&shared.empty[i], MATVEC_WARPS);
            }
            publish_barriers();
        }
        __syncthreads();
    }

    __device__ bf16* row_of_slot(int row) const {
        return reinterpret_cast<bf16*>(shared.ring) + (slot * TILE + row) * STRIDE;
    }

    __device__ void advance() {
        if (++slot < SLOTS) return;
        slot = 0;
        parity ^= 1;
    }

    // What the ring has no room for yet, from a tile's slice on, of as many rows as there are lanes, into the L2.
    __device__ void prefetch(int tile, int slice) const {
        int first = outputs.begin(tile), row = first + lane_index();
        if (row >= outputs.first + outputs.count) return;
        int skipped = row < outputs.begin(tile + 1) ? slice * SLICE * CHUNK : 0;
        for (int part = 0; part < PARTS; part++)
            prefetch_bulk(w + part * half + static_cast<i64>(row) * K + skipped, (K - skipped) * 2);
    }

    // As the warp behind those that multiply, ask for everything; whether this is that warp, which is then done.
    template <bool AHEAD>
    __device__ bool produce() {
        if (warp_index() < MATVEC_WARPS) return false;
        bool first_round = true;
        for (int tile = 0; tile < outputs.tiles; tile++) {
            int begin = outputs.begin(tile), rows = outputs.begin(tile + 1) - begin;
            const bf16* from = w + static_cast<i64>(begin) * K;
            for (int slice = 0; slice < SLICES; slice++) {
                if (AHEAD && first_round && parity == 1) {
                    prefetch(tile, slice);
                    first_round = false;
                }
                u32 bytes = min(SLICE, CHUNKS - slice * SLICE) * CHUNK * 2;
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    wait_for(&shared.empty[slot], parity ^ 1);
                    if (elected()) {
                        arrive_and_expect(&shared.full[slot], rows * bytes);
#pragma unroll
                        for (int row = 0; row < TILE; row++)
                            if (row < rows)
                                copy_bulk(row_of_slot(row), from + part * half + row * K + slice * SLICE * CHUNK, bytes,
                                          &shared.full[slot]);
                    }
                    advance();
                }
            }
        }
        if (MATVEC_START_LATE) {
            wait_for_previous_kernels();
            start_next_kernel();
        }
        return true;
    }

    // This warp's part of a tile, the `at`-th of its batch.
    __device__ void multiply(int batch, int at, int, int rows) {
        float even[PARTS][4] = {}, odd[PARTS][4] = {};
        int row = lane_index() / 4, within = lane_index() % 4 * LANE_K;
        for (int slice = 0; slice < SLICES; slice++) {
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                wait_for(&shared.full[slot], parity);
                uint4 v[STEPS], x[STEPS] = {};
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    int chunk = step * MATVEC_WARPS + warp_index(), whole = slice * SLICE + chunk;
                    if (!EVEN && (chunk >= SLICE || whole >= CHUNKS)) continue;
                    v[step] = *reinterpret_cast<const uint4*>(row_of_slot(row) + chunk * CHUNK + within);
                    if (row < rows) x[step] = *reinterpret_cast<const uint4*>(&shared.x[row][whole * CHUNK + within]);
                }
                __syncwarp();
                if (lane_index() == 0) arrive(&shared.empty[slot]);
                advance();
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    int chunk = step * MATVEC_WARPS + warp_index();
                    if (!EVEN && (chunk >= SLICE || slice * SLICE + chunk >= CHUNKS)) continue;
                    mma(even[part], x[step].x, 0, x[step].y, 0, v[step].x, v[step].y);
                    mma(odd[part], x[step].z, 0, x[step].w, 0, v[step].z, v[step].w);
                }
            }
        }
        shared.keep(batch, at, even, odd);
    }

    // All products; `store(row, output, sum, sum of the other of the pair)` is called once for each of C.
    template <class Store>
    __device__ void run(int rows, Store store) {
        if (!MATVEC_START_LATE) start_next_kernel();
        run_batches(*this, rows, store);
    }
};
