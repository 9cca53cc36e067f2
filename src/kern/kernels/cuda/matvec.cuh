// C [rows, n] = X [rows, K] · W [n, K]ᵀ for a few rows: what a step costs is reading W once, so all here is about that.
//
// A block computes a contiguous range of C's columns, which are rows of W, eight at a time. Its warps divide K among
// them. X is the other operand, at most 8 rows of it, zeros where there are fewer: what a row yields does not depend on
// how many others there are. A warp needs the same part of X for every eight columns, so its lanes hold it (operand.cuh).
#pragma once
#include "kernel.cuh"
#include "tensor_core.cuh"

constexpr int THREADS = MATVEC_WARPS * WARP;
constexpr int CHUNK = 32;      // k of one step of a warp
constexpr int LANE_K = 8;      // elements of k that a lane takes at once: 16 bytes
constexpr int TILE = 8;        // rows of W that a warp multiplies at once
constexpr int BATCH = 4;       // tiles between two sums over the warps
constexpr int SUMS_APART = 4;  // floats between the sums of a row and the next: lanes' sums then lie in other banks
constexpr int TILES_APART = 8;  // and between those of a tile and the next
constexpr int MAX_SLOTS = 16;  // of a ring that bulk copies fill
constexpr int MAX_STEPS = 2;   // between two waits, where each thread copies what it will use

static_assert(ROWS >= 1 && ROWS <= 8, "as many rows of X as one product takes without a second operand");
static_assert(BATCH * TILE == WARP && ROWS <= MATVEC_WARPS, "a warp sums the columns of one row");

// All threads that multiply; the warp that issues bulk copies is not one of them.
__device__ inline void sync_workers() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

// Rows of X that this block works on: those from `first`, `count` of them, at most `most`.
struct RowSlice {
    int first, count;

    __device__ explicit RowSlice(int rows, int most = ROWS)
        : first(blockIdx.y * most), count(min(rows - first, most)) {}
};

// A tile's sums of a warp: with g = lane / 4 and t = lane % 4 a lane has W's row g and X's rows 2t and 2t + 1.
struct Sums {
    float low[4] = {}, high[4] = {};

    // A chunk of K. A dot product does not care in which order k runs, so a lane's 16 bytes of W's row g, as they lie in
    // memory, serve as the operand of two products: its first and third word as the product's row g, its second and
    // fourth as row g + 8. With X's words for the one or the other, that half of the product is what is wanted.
    __device__ void add(const uint4& w, const uint4& x) {
        mma(low, w.x, w.y, w.z, w.w, x.x, x.y);
        mma(high, w.x, w.y, w.z, w.w, x.z, x.w);
    }

    __device__ float of(int i) const { return low[i] + high[2 + i]; }
};

// The columns of C that a block computes, cut into tiles of about equal size.
struct Outputs {
    int first, count, tiles, of_tile, larger;

    // `split` blocks that follow each other compute the same columns.
    __device__ Outputs(int outputs, int split) {
        int share = ceil_div(outputs, static_cast<int>(gridDim.x) / split);
        first = min(static_cast<int>(blockIdx.x) / split * share, outputs);
        count = min(share, outputs - first);
        tiles = ceil_div(count, TILE);
        of_tile = tiles > 0 ? count / tiles : 0;
        larger = count - of_tile * tiles;  // tiles with one more
    }

    __device__ int begin(int tile) const { return first + tile * of_tile + min(tile, larger); }
};

// The most steps, up to `most`, that divide `steps`.
__host__ __device__ constexpr int steps_of_turn(int steps, int most) {
    while (most > 1 && steps % most > 0) most--;
    return most;
}

// Shared memory of a block. A tile has PARTS rows of W for each of C's columns: 2 for gate and up.
template <int K, int PARTS>
struct Shared {
    // Of the chunks that a warp takes of K, those that its lanes have no registers for. Pairs may make it one more.
    static constexpr int MINE = ceil_div(K / CHUNK, MATVEC_WARPS) + 1;
    static constexpr int LEFT = MINE > MATVEC_HELD_CHUNKS ? MINE - MATVEC_HELD_CHUNKS : 0;
    // As large as it is to be, or as what else there is leaves room for.
    static constexpr int BARRIERS = 2 * MAX_SLOTS * sizeof(u64);
    static constexpr int X_BYTES = LEFT * MATVEC_WARPS * ROWS * CHUNK * 2;
    static constexpr int ROW_SUMS = PARTS * TILE + SUMS_APART, TILE_SUMS = MATVEC_WARPS * ROWS * ROW_SUMS + TILES_APART;
    static constexpr int WORK = BARRIERS + X_BYTES + 4 * 2 * BATCH * TILE_SUMS;
    static constexpr int ROOM = (MATVEC_SHARED_BYTES - WORK) / 1024 * 1024;
    static constexpr int RING = ROOM < MATVEC_RING_BYTES ? ROOM : MATVEC_RING_BYTES;

    uint4 ring[RING / sizeof(uint4)];
    u64 full[MAX_SLOTS], empty[MAX_SLOTS];  // barriers of the ring, where bulk copies fill it
    float parts[2 * BATCH][TILE_SUMS];  // each warp's part of the sums of two batches of tiles

    __device__ static Shared& get() {
        static_assert(sizeof(Shared) + X_BYTES == RING + WORK, "as much as the launch asks for");
        extern __shared__ __align__(128) char memory[];
        return *reinterpret_cast<Shared*>(memory);
    }

    // Barriers for two blocks that share K.
    __device__ u64& met() { return full[MAX_SLOTS - 1]; }
    __device__ u64& read() { return empty[MAX_SLOTS - 1]; }

    // This lane's piece of X of a step that is left.
    __device__ uint4& left(int step) {
        return reinterpret_cast<uint4*>(this + 1)[(step * MATVEC_WARPS + warp_index()) * ROWS * 4 + lane_index()];
    }

    // A warp's part of a sum; the tile is one of two batches.
    __device__ float& part(int tile, int warp, int row, int which, int at) {
        return parts[tile][(warp * ROWS + row) * ROW_SUMS + which * TILE + at];
    }

    // Keep this warp's part of a tile's sums.
    __device__ void keep(int tile, const Sums (&sums)[PARTS]) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = lane_index() % 4 * 2 + i;
            if (row >= ROWS) continue;
#pragma unroll
            for (int which = 0; which < PARTS; which++)
                part(tile, warp_index(), row, which, lane_index() / 4) = sums[which].of(i);
        }
    }

    // The sum over the warps, in their order, so that it is the same at each run.
    __device__ float sum(int tile, int row, int which, int at) {
        float total = 0.0f;
#pragma unroll
        for (int warp = 0; warp < MATVEC_WARPS; warp++) total += part(tile, warp, row, which, at);
        return total;
    }
};

// All tiles of a stream in batches. Each warp then sums the columns of one row; the epilogue loads what it needs for
// them while the tiles are multiplied, and takes every sum, with that of the other of the pair, once.
template <class Stream, class X, class Epilogue>
__device__ inline void run_batches(Stream& stream, const X& x, const RowSlice& slice, Epilogue epilogue) {
    const Outputs& outputs = stream.outputs;
    int in_slice = warp_index(), row = slice.first + in_slice, place = lane_index() / TILE, column = lane_index() % TILE;
    bool has_row = in_slice < slice.count;
    if (has_row) epilogue.begin(row);
    int kept = 0;  // the first place of this batch
    for (int first = 0; first < outputs.tiles; first += BATCH, kept ^= BATCH) {
        int count = min(BATCH, outputs.tiles - first), tile = first + place, output = outputs.begin(tile) + column;
        bool mine = place < count && output < outputs.begin(tile + 1);
        typename Epilogue::Needed needed{};
        if (has_row) needed = epilogue.load(row, output, mine);
        for (int at = 0; at < count; at++) stream.multiply(kept + at, x);
        // Two batches of sums: a warp that is ahead writes the other one meanwhile.
        sync_workers();
        if (!has_row) continue;
        if (first == 0) epilogue.settle();
        float sum = 0.0f, other = 0.0f;
        if (mine) {
            sum = stream.shared.sum(kept + place, in_slice, 0, column);
            if (Stream::PAIRS) other = stream.shared.sum(kept + place, in_slice, Stream::PAIRS, column);
        }
        epilogue.store(row, output, mine, sum, other, needed);
    }
    if (has_row) epilogue.finish(row);
}

// The stream of a block's weights through its ring of shared memory. Each lane copies what it will use itself, so it
// waits for nobody else. Between two waits a warp takes a turn of several steps; the ring holds SLOTS turns, across the
// borders of tiles.
template <int K, int PARTS, int SPLIT>
struct Stream {
    static_assert(SPLIT == 1, "blocks that share K meet by what these architectures do not have");
    using Memory = Shared<K, PARTS>;
    static constexpr int PAIRS = PARTS - 1;
    static constexpr int CHUNKS = K / CHUNK;
    static constexpr int TILE_STEPS = ceil_div(CHUNKS, MATVEC_WARPS);
    static constexpr bool EVEN = CHUNKS == TILE_STEPS * MATVEC_WARPS;
    static constexpr int STEPS = steps_of_turn(TILE_STEPS, MAX_STEPS / PARTS);
    static constexpr int TURNS = TILE_STEPS / STEPS;
    static constexpr int PITCH = K;
    static constexpr int PIECES = STEPS * PARTS * THREADS;  // of 16 bytes, in a turn
    static constexpr int SLOTS = Memory::RING / (PIECES * 16);
    static_assert(K % CHUNK == 0, "rows of whole chunks");
    static_assert(SLOTS >= 2, "one slot on its way while another is worked on");

    Memory& shared;
    const bf16* w;
    i64 half;  // elements from a row to the other of its pair
    Outputs outputs;
    int slot = 0;                      // to be used, and filled again, next
    int next_tile = 0, next_turn = 0;  // to be loaded next
    const bf16* from = nullptr;        // this lane's weights of it
    bool inside = false;               // whether the tile has this lane's row

    __device__ Stream(Memory& shared, const bf16* w, int n)
        : shared(shared), w(w), half(static_cast<i64>(n) * K), outputs(n, SPLIT) {}

    // This thread's piece of a step of the slot.
    __device__ uint4& piece(int step, int part) const {
        return shared.ring[slot * PIECES + (step * PARTS + part) * THREADS + threadIdx.x];
    }

    // The chunk of K that this warp takes as its `step`-th of a tile, and whether there is one.
    __device__ static int chunk(int step) { return step * MATVEC_WARPS + warp_index(); }
    __device__ static bool has(int step) { return EVEN || chunk(step) < CHUNKS; }

    __device__ static int first() { return 0; }

    __device__ bool all_loaded() const { return next_tile == outputs.tiles; }

    // Stand before the first turn of `next_tile`.
    __device__ void point() {
        if (all_loaded()) return;
        int begin = outputs.begin(next_tile), row = lane_index() / 4;
        inside = begin + row < outputs.begin(next_tile + 1);
        from = w + static_cast<i64>(begin + row) * K + warp_index() * CHUNK + lane_index() % 4 * LANE_K;
    }

    // The next turn's weights on their way into the ring.
    __device__ void load() {
        if (!all_loaded()) {
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                bool valid = inside && has(next_turn * STEPS + step);
                const bf16* at = valid ? from + step * MATVEC_WARPS * CHUNK : w;
#pragma unroll
                for (int part = 0; part < PARTS; part++)
                    copy_async(&piece(step, part), at + part * half, valid);
            }
            from += STEPS * MATVEC_WARPS * CHUNK;
            if (++next_turn == TURNS) {
                next_turn = 0;
                next_tile++;
                point();
            }
        }
        commit_copies();  // an empty group keeps the count of groups
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
    }

    // This warp's part of the next tile, whose sums have place `at`.
    template <class X>
    __device__ void multiply(int at, const X& x) {
        Sums sums[PARTS];
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            wait_for_copies<SLOTS - 1>();
            uint4 weights[STEPS][PARTS];
#pragma unroll
            for (int step = 0; step < STEPS; step++)
#pragma unroll
                for (int part = 0; part < PARTS; part++) weights[step][part] = piece(step, part);
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                uint4 rows = x.at(turn * STEPS + step);
#pragma unroll
                for (int part = 0; part < PARTS; part++) sums[part].add(weights[step][part], rows);
            }
            load();
        }
        shared.keep(at, sums);
    }

    // The first weights; whether this thread has nothing more to do.
    __device__ bool produce() {
        point();
#pragma unroll 1
        for (int i = 0; i < SLOTS; i++) load();
        return false;
    }
};
