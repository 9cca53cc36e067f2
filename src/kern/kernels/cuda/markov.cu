// One step of a draft's chain of tokens: the token before adds a product of low rank to a row of logits (the Markov head
// of DSpark), whose maximum is the next token. What that costs is reading the matrix, so a block's rows of it stream
// through a ring in shared memory from the kernel's first moment on, while the steps before finish; a warp
// multiplies whole rows, eight at a time.
#include "bulk.cuh"
#include "candidate.cuh"
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
        __syncwarp();
        if (lane_index() == 0) arrive(&empty[slot]);
        advance();
        if constexpr (CROSSED) {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk += 2) {
                uint4 even = weights[chunk], odd = weights[chunk + 1];
                weights[chunk] = crossed ? odd : even;
                weights[chunk + 1] = crossed ? even : odd;
            }
        }
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
        load();
    }
};
#endif

// The row of the table for the token before, as the products take it: its pieces in the first four lanes, other rows 0.
struct TokenRow {
    uint4 chunk[CHUNKS] = {};

    __device__ TokenRow(const bf16* table, const i64* before) {
        __shared__ i64 token;
        if (threadIdx.x == 0) token = row_of(load_fresh<i64>(before));
        sync_workers();
        if (lane_index() >= 4) return;
        const bf16* from = table + token * RANK + lane_index() * LANE_K;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) chunk[i] = *reinterpret_cast<const uint4*>(from + i * CHUNK);
    }

    // Its product with a tile of the matrix, of row i in lane i and those that are i modulo 8. The first operand has half
    // of each piece as row 0, the other half as row 8, so that it is whole registers without zeros; the sum of either half
    // is in its row, and nobody reads the others.
    __device__ float times(const uint4 (&weights)[CHUNKS]) const {
        float low[4] = {}, high[4] = {};
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            const uint4 &x = chunk[i], &w = weights[i];
            mma(low, x.x, x.z, x.y, x.w, w.x, w.y);
            mma(high, x.x, x.z, x.y, x.w, w.z, w.w);
        }
        int from = lane_index() % TILE / 2;
        float even = __shfl_sync(ALL_LANES, low[0] + high[2], from);
        float odd = __shfl_sync(ALL_LANES, low[1] + high[3], from);
        return lane_index() % 2 ? odd : even;
    }
};

// logits += table[before] · matrixᵀ for the block's rows; the maximum of them. Each lane has a row of one of a batch's
// turns; what its logit was is loaded a batch ahead.
__device__ static Candidate add_rows(float* logits, const TokenRow& x, MatrixStream& stream, const Range& range, int n) {
    constexpr int BATCH_TURNS = WARP / TILE;
    int place = lane_index() / TILE, within = place * SLOT_ROWS + warp_index() * TILE + lane_index() % TILE;
    auto logit = [&](int row) { return row < range.count ? load_fresh<float>(logits + range.first + row) : 0.0f; };
    Candidate top = Candidate::none();
    float next = logit(within);
    for (int first = 0; first < range.turns; first += BATCH_TURNS) {
        int row = first * SLOT_ROWS + within;
        float sum = next;
        next = logit(row + BATCH_TURNS * SLOT_ROWS);
        int count = min(BATCH_TURNS, range.turns - first);
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            uint4 weights[CHUNKS];
            stream.take(weights);
            float product = x.times(weights);
            if (place == i) sum += product;
        }
        if (row >= range.count) continue;
        logits[range.first + row] = sum;
        Candidate mine = Candidate::of(sum, range.first + row);
        if (mine.beats(top)) top = mine;
    }
    return top;
}

// best[block], index[block] of logits [n], after the addition. The matrix does not change, so it is read before the wait.
KERNEL(MatrixStream::BLOCK, 1)
markov_partial(float* best, int* index, float* logits, const i64* before, const bf16* table, const bf16* matrix, int n,
               int rank) {
    expect(rank, RANK);
    Range range(n);
    MatrixStream stream(matrix, range);
    if (stream.produce()) return;
    wait_for_previous_kernels();
    start_next_kernel();
    TokenRow x(table, before);
    Candidate top = best_of_warp(add_rows(logits, x, stream, range, n));
    __shared__ Candidate tops[MATVEC_WARPS];
    if (lane_index() == 0) tops[warp_index()] = top;
    sync_workers();
    if (warp_index() > 0) return;
    top = best_of_warp(tops[lane_index() % MATVEC_WARPS]);
    if (lane_index() > 0) return;
    best[blockIdx.x] = top.value;
    index[blockIdx.x] = top.choice();
}
