// The stream of a block's weights by bulk copies: one warp asks for them as far ahead as the ring has room, from the
// kernel's first moment on, and the others multiply.
#pragma once
#include "bulk.cuh"
#include "matvec.cuh"

// A slot of the ring holds a tile's rows: whole, as they lie in memory, so that one copy brings them, or a slice along
// K of them, a copy a row. Each copy takes the engine that makes it a while, so what counts is that they are large.
template <int K, int PARTS>
struct BulkStream {
    using Memory = Shared<K, PARTS>;
    static constexpr int PAIRS = PARTS - 1;
    static constexpr int CHUNKS = K / CHUNK;
    static constexpr int SLOT_BYTES = MATVEC_SLOT_BYTES < Memory::RING / 4 ? MATVEC_SLOT_BYTES : Memory::RING / 4;
    static constexpr int MOST = SLOT_BYTES / (TILE * CHUNK * 2);
    static constexpr int SLICE = ceil_div(CHUNKS, ceil_div(CHUNKS, MOST));  // chunks of it, of about equal slices
    static constexpr int SLICES = ceil_div(CHUNKS, SLICE);
    static constexpr bool WHOLE = SLICES == 1;
    // With an odd number of chunks from row to row neighbours lie in different banks. Where whole rows have an even
    // number, every other row's lanes take the two chunks of a pair in the other order.
    static constexpr bool CROSSED = WHOLE && SLICE % 2 == 0;
    static constexpr int STEPS = CROSSED ? 2 * ceil_div(SLICE, 2 * MATVEC_WARPS) : ceil_div(SLICE, MATVEC_WARPS);
    static constexpr bool EVEN = CHUNKS == SLICES * STEPS * MATVEC_WARPS;
    static constexpr int STRIDE = (WHOLE ? SLICE : SLICE + 1 - SLICE % 2) * CHUNK;
    static constexpr int FITTING = Memory::RING / (TILE * STRIDE * 2);
    static constexpr int SLOTS = FITTING < MAX_SLOTS ? FITTING : MAX_SLOTS;
    static_assert(K % CHUNK == 0, "rows of whole chunks");
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

    // The slice's chunk of a warp's step; where rows are crossed, those of two steps are a pair of neighbours.
    __device__ static int chunk(int step) {
        if (!CROSSED) return step * MATVEC_WARPS + warp_index();
        return (step / 2 * MATVEC_WARPS + warp_index()) * 2 + step % 2;
    }

    // This warp's part of a tile, the `at`-th of its batch.
    __device__ void multiply(int batch, int at, int, int rows) {
        float even[PARTS][4] = {}, odd[PARTS][4] = {};
        int row = lane_index() / 4, within = lane_index() % 4 * LANE_K, crossed = CROSSED ? row % 2 : 0;
        for (int first = 0; first < CHUNKS; first += SLICE) {
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                wait_for(&shared.full[slot], parity);
                uint4 v[STEPS], x[STEPS] = {};
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    if (!has(first, step)) continue;
                    int k = chunk(step) * CHUNK + within;
                    v[step] = *reinterpret_cast<const uint4*>(row_of_slot(row) + (k ^ crossed * CHUNK));
                    if (row < rows) x[step] = *reinterpret_cast<const uint4*>(&shared.x[row][first * CHUNK + k]);
                }
                __syncwarp();
                if (lane_index() == 0) arrive(&shared.empty[slot]);
                advance();
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    if (!has(first, step)) continue;
                    uint4 weights = v[step];
                    if constexpr (CROSSED) weights = crossed ? v[step ^ 1] : weights;
                    mma(even[part], x[step].x, 0, x[step].y, 0, weights.x, weights.y);
                    mma(odd[part], x[step].z, 0, x[step].w, 0, weights.z, weights.w);
                }
            }
        }
        shared.keep(batch, at, even, odd);
    }

    // Whether the slice from chunk `first` on has a chunk for this warp's step.
    __device__ static bool has(int first, int step) {
        return EVEN || (chunk(step) < SLICE && first + chunk(step) < CHUNKS);
    }

    // All products; `store(row, output, sum, sum of the other of the pair)` is called once for each of C.
    template <class Store>
    __device__ void run(int rows, Store store) {
        start_next_kernel();
        run_batches(*this, rows, store);
    }
};
