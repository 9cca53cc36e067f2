// C [rows, n] = X [rows, K] · W [n, K]ᵀ for a few rows: what a step costs is reading W once, so all here is about that.
//
// A block computes a contiguous range of C's columns, which are rows of W, eight at a time. Its warps divide K among
// them. A dot product does not care in which order k runs, so a lane's 16 bytes of W, as they lie in memory, serve as
// operands of two tensor-core products. X is the other operand, at most 8 rows of it, zeros where there are fewer: what
// a row yields does not depend on how many others there are.
#pragma once
#include "kernel.cuh"
#include "tensor_core.cuh"

constexpr int THREADS = MATVEC_WARPS * WARP;
constexpr int CHUNK = 32;      // k of one step of a warp
constexpr int LANE_K = 8;      // elements of k that a lane takes at once: 16 bytes
constexpr int TILE = 8;        // rows of W that a warp multiplies at once
constexpr int BATCH = 4;       // tiles between two sums over the warps
constexpr int X_PADDING = 32;  // elements between the rows of X: neighbours then lie in different banks
constexpr int MAX_SLOTS = 16;  // of a ring that bulk copies fill
constexpr int MAX_STEPS = 2;   // between two waits, where each thread copies what it will use

static_assert(ROWS >= 1 && ROWS <= 8, "as many rows of X as one product takes without a second operand");

// All threads that multiply; the warp that asks for bulk copies is none of them.
__device__ inline void sync_workers() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

// Rows of X that this block works on: those from `first`, `count` of them, at most ROWS.
struct Slice {
    int first, count;

    __device__ explicit Slice(int rows) : first(blockIdx.y * ROWS), count(min(rows - first, ROWS)) {}
};

// The columns of C that a block computes, cut into tiles of about equal size.
struct Outputs {
    int first, count, tiles, of_tile, larger;

    __device__ explicit Outputs(int outputs) {
        int share = ceil_div(outputs, static_cast<int>(gridDim.x));
        first = min(static_cast<int>(blockIdx.x) * share, outputs);
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
    static constexpr int STRIDE = K + X_PADDING;
    // As large as it is to be, or as what else there is leaves room for.
    static constexpr int BARRIERS = 2 * MAX_SLOTS * sizeof(u64), SUMS = 2 * BATCH * PARTS * TILE;
    static constexpr int WORK = BARRIERS + ROWS * (2 * STRIDE + 4 * MATVEC_WARPS * (SUMS + 1));
    static constexpr int ROOM = (MATVEC_SHARED_BYTES - WORK) / 1024 * 1024;
    static constexpr int RING = ROOM < MATVEC_RING_BYTES ? ROOM : MATVEC_RING_BYTES;

    uint4 ring[RING / sizeof(uint4)];
    u64 full[MAX_SLOTS], empty[MAX_SLOTS];  // barriers of the ring, where bulk copies fill it
    bf16 x[ROWS][STRIDE];
    float part[2][BATCH][MATVEC_WARPS][ROWS][PARTS][TILE];  // each warp's part of the sums of two batches of tiles
    float squares[ROWS][MATVEC_WARPS];

    __device__ static Shared& get() {
        static_assert(sizeof(Shared) == RING + WORK, "as much as the launch asks for");
        extern __shared__ __align__(128) char memory[];
        return *reinterpret_cast<Shared*>(memory);
    }

    // Keep this warp's part of a tile's sums.
    __device__ void keep(int parity, int tile, const float (&even)[PARTS][4], const float (&odd)[PARTS][4]) {
        int row = lane_index() / 4;
        if (row >= ROWS) return;
#pragma unroll
        for (int which = 0; which < PARTS; which++) {
            float* to = &part[parity][tile][warp_index()][row][which][lane_index() % 4 * 2];
            *reinterpret_cast<float2*>(to) = {even[which][0] + odd[which][0], even[which][1] + odd[which][1]};
        }
    }

    // The sum over the warps, in their order, so that it is the same at each run.
    __device__ float sum(int parity, int tile, int row, int which, int at) const {
        float total = 0.0f;
#pragma unroll
        for (int warp = 0; warp < MATVEC_WARPS; warp++) total += part[parity][tile][warp][row][which][at];
        return total;
    }
};

// All tiles of a stream in batches; `store(row, output, sum, sum of the other of the pair)` is called once for each of C.
template <class Stream, class Store>
__device__ inline void run_batches(Stream& stream, int rows, Store store) {
    const Outputs& outputs = stream.outputs;
    int parity = 0;
    for (int first = 0; first < outputs.tiles; first += BATCH, parity ^= 1) {
        int count = min(BATCH, outputs.tiles - first);
        for (int at = 0; at < count; at++) stream.multiply(parity, at, first + at, rows);
        // Two batches of sums: a warp that is ahead writes the other one meanwhile.
        sync_workers();
        for (int i = threadIdx.x; i < BATCH * TILE * rows; i += THREADS) {
            int row = i / (BATCH * TILE), at = i / TILE % BATCH, column = i % TILE;
            int output = outputs.begin(first + at) + column;
            if (at >= count || output >= outputs.begin(first + at + 1)) continue;
            float other = Stream::PAIRS ? stream.shared.sum(parity, at, row, Stream::PAIRS, column) : 0.0f;
            store(row, output, stream.shared.sum(parity, at, row, 0, column), other);
        }
    }
}

// The stream of a block's weights through its ring of shared memory. Each lane copies what it will use itself, so it
// waits for nobody else. Between two waits a warp takes a turn of several steps; the ring holds SLOTS turns, across the
// borders of tiles.
template <int K, int PARTS>
struct Stream {
    using Memory = Shared<K, PARTS>;
    static constexpr int PAIRS = PARTS - 1;
    static constexpr int CHUNKS = K / CHUNK;
    static constexpr int TILE_STEPS = ceil_div(CHUNKS, MATVEC_WARPS);
    static constexpr bool EVEN = CHUNKS == TILE_STEPS * MATVEC_WARPS;
    static constexpr int STEPS = steps_of_turn(TILE_STEPS, MAX_STEPS / PARTS);
    static constexpr int TURNS = TILE_STEPS / STEPS;
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
        : shared(shared), w(w), half(static_cast<i64>(n) * K), outputs(n) {}

    // This thread's piece of a step of the slot.
    __device__ uint4& piece(int step, int part) const {
        return shared.ring[slot * PIECES + (step * PARTS + part) * THREADS + threadIdx.x];
    }

    __device__ static int chunk(int turn, int step) { return (turn * STEPS + step) * MATVEC_WARPS + warp_index(); }

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
                bool valid = inside && (EVEN || chunk(next_turn, step) < CHUNKS);
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

    // This warp's part of the next tile, the `at`-th of its batch.
    __device__ void multiply(int parity, int at, int, int rows) {
        float even[PARTS][4] = {}, odd[PARTS][4] = {};
        int row = lane_index() / 4;
        for (int turn = 0; turn < TURNS; turn++) {
            wait_for_copies<SLOTS - 1>();
            uint4 weights[STEPS][PARTS], x[STEPS] = {};
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
#pragma unroll
                for (int part = 0; part < PARTS; part++) weights[step][part] = piece(step, part);
                int k = chunk(turn, step) * CHUNK + lane_index() % 4 * LANE_K;
                if (row < rows && (EVEN || k < K)) x[step] = *reinterpret_cast<const uint4*>(&shared.x[row][k]);
            }
#pragma unroll
            for (int step = 0; step < STEPS; step++)
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    const uint4& v = weights[step][part];
                    mma(even[part], x[step].x, 0, x[step].y, 0, v.x, v.y);
                    mma(odd[part], x[step].z, 0, x[step].w, 0, v.z, v.w);
                }
            load();
        }
        shared.keep(parity, at, even, odd);
    }

    // All products; `store(row, output, sum, sum of the other of the pair)` is called once for each of C.
    template <class Store>
    __device__ void run(int rows, Store store) {
        start_next_kernel();
        run_batches(*this, rows, store);
    }

    // The first weights; whether this thread has nothing more to do.
    __device__ bool produce() {
        point();
#pragma unroll 1
        for (int i = 0; i < SLOTS; i++) load();
        return false;
    }
};
