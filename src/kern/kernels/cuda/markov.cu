// One step of a draft's chain of tokens: the token before adds a product of low rank to a row of logits (the Markov head
// of DSpark), whose maximum is the next token; for up to eight sequences at once. What that costs is reading the matrix,
// so a block's rows of it stream through a ring in shared memory from the kernel's first moment on, while the steps
// before finish; a warp multiplies whole rows, eight at a time.
#include "candidate.cuh"
#include "markov_stream.cuh"

// The rows of the table for the tokens before, as the products take them: of sequence i its pieces in lanes 4i to 4i + 3;
// 0 where there is none. Its token is the first of `stride`.
struct TokenRows {
    uint4 chunk[CHUNKS] = {};

    __device__ TokenRows(const bf16* table, const i64* before, int seqs, int stride) {
        __shared__ i64 tokens[TILE];
        int s = lane_index() / 4, mine = threadIdx.x;
        if (mine < seqs) tokens[mine] = row_of(load_fresh<i64>(before + static_cast<i64>(mine) * stride));
        sync_workers();
        if (s >= seqs) return;
        const bf16* from = table + tokens[s] * RANK + lane_index() % 4 * LANE_K;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) chunk[i] = *reinterpret_cast<const uint4*>(from + i * CHUNK);
    }

    // Their products with a tile of the matrix: of the lane's sequence, of the two rows from lane % 4 · 2. The first
    // operand has half of each piece as rows 0 to 7, the other half as rows 8 to 15, so that it is whole registers without
    // zeros; the sum of either half is in its row, and nobody reads the others.
    __device__ float2 times(const uint4 (&weights)[CHUNKS]) const {
        float low[4] = {}, high[4] = {};
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            const uint4 &x = chunk[i], &w = weights[i];
            mma(low, x.x, x.z, x.y, x.w, w.x, w.y);
            mma(high, x.x, x.z, x.y, x.w, w.z, w.w);
        }
        return make_float2(low[0] + high[2], low[1] + high[3]);
    }

    // That of the only sequence, of row i in lane i and those that are i modulo 8.
    __device__ float times_first(const uint4 (&weights)[CHUNKS]) const {
        float2 sums = times(weights);
        int from = lane_index() % TILE / 2;
        float even = __shfl_sync(ALL_LANES, sums.x, from), odd = __shfl_sync(ALL_LANES, sums.y, from);
        return lane_index() % 2 ? odd : even;
    }
};

constexpr int BATCH_TURNS = WARP / TILE;  // what logits were is loaded a batch of turns ahead

// logits += table[before] · matrixᵀ for the block's rows, of the only sequence; the maximum of them. Each lane has a row
// of one of a batch's turns.
__device__ static Candidate add_rows(float* logits, const TokenRows& x, MatrixStream& stream, const Range& range) {
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
            float product = x.times_first(weights);
            stream.release(product);
            if (place == i) sum += product;
        }
        if (row >= range.count) continue;
        logits[range.first + row] = sum;
        Candidate mine = Candidate::of(sum, range.first + row);
        if (mine.beats(top)) top = mine;
    }
    return top;
}

// Two neighbouring logits, `valid` of which there are; `paired`: their address is a multiple of 8.
struct LogitPair {
    float* at;
    int valid;
    bool paired;

    __device__ float2 load() const {
        if (paired && valid > 1) return load_fresh<float2>(at);
        return make_float2(valid > 0 ? load_fresh<float>(at) : 0.0f, valid > 1 ? load_fresh<float>(at + 1) : 0.0f);
    }

    __device__ void store(float2 sums) const {
        if (paired && valid > 1) {
            *reinterpret_cast<float2*>(at) = sums;
        } else {
            if (valid > 0) at[0] = sums.x;
            if (valid > 1) at[1] = sums.y;
        }
    }
};

// The same of up to TILE sequences, whose logits are `apart` elements apart; the maximum of the lane's sequence among
// what the lane has.
__device__ static Candidate add_rows_of_each(float* logits, i64 apart, int seqs, const TokenRows& x,
                                             MatrixStream& stream, const Range& range) {
    int s = lane_index() / 4, within = warp_index() * TILE + lane_index() % 4 * 2;
    float* own = logits + s * apart + range.first;
    bool paired = apart % 2 == 0 && reinterpret_cast<u64>(logits) % sizeof(float2) == 0;
    auto pair_of = [&](int turn) {
        int row = turn * SLOT_ROWS + within;
        return LogitPair{own + row, s < seqs ? range.count - row : 0, paired};
    };
    Candidate top = Candidate::none();
    float2 next[BATCH_TURNS];
#pragma unroll
    for (int i = 0; i < BATCH_TURNS; i++) next[i] = pair_of(i).load();
    for (int first = 0; first < range.turns; first += BATCH_TURNS) {
        float2 sums[BATCH_TURNS];
#pragma unroll
        for (int i = 0; i < BATCH_TURNS; i++) {
            sums[i] = next[i];
            next[i] = pair_of(first + BATCH_TURNS + i).load();
        }
#pragma unroll
        for (int i = 0; i < BATCH_TURNS; i++) {
            if (first + i >= range.turns) break;
            uint4 weights[CHUNKS];
            stream.take(weights);
            float2 products = x.times(weights);
            float2 whole = make_float2(sums[i].x + products.x, sums[i].y + products.y);
            LogitPair pair = pair_of(first + i);
            pair.store(whole);
            stream.release(products.x);
            int row = range.first + (first + i) * SLOT_ROWS + within;
            Candidate low = Candidate::of(whole.x, row), high = Candidate::of(whole.y, row + 1);
            if (pair.valid > 0 && low.beats(top)) top = low;
            if (pair.valid > 1 && high.beats(top)) top = high;
        }
    }
    return top;
}

// best[sequence, block], index[sequence, block] of logits [seqs, rows - 1, n], the first row of each, after the addition;
// before is [seqs, rows], the first of each. The matrix does not change, so it is read before the wait.
KERNEL(MatrixStream::BLOCK, 1)
markov_partial(float* best, int* index, float* logits, const i64* before, const bf16* table, const bf16* matrix,
               int seqs, int n, int rank, int rows) {
    expect(rank, RANK);
    if (seqs > TILE) __trap();
    Range range(n);
    MatrixStream stream(matrix, range);
    if (stream.produce()) return;
    wait_for_previous_kernels();
    start_next_kernel();
    TokenRows x(table, before, seqs, rows);
    __shared__ Candidate tops[MATVEC_WARPS][TILE];
    if (seqs == 1) {
        Candidate top = best_of_warp(add_rows(logits, x, stream, range));
        if (lane_index() == 0) tops[warp_index()][0] = top;
    } else {
        i64 apart = static_cast<i64>(rows - 1) * n;
        Candidate top = best_of_lanes<4>(add_rows_of_each(logits, apart, seqs, x, stream, range));
        if (lane_index() % 4 == 0) tops[warp_index()][lane_index() / 4] = top;
    }
    sync_workers();
    if (warp_index() > 0) return;
    int s = lane_index() / 4;
    Candidate top = Candidate::none();
    for (int warp = lane_index() % 4; warp < MATVEC_WARPS; warp += 4)
        if (s < seqs && tops[warp][s].beats(top)) top = tops[warp][s];
    top = best_of_lanes<4>(top);
    if (s >= seqs || lane_index() % 4 > 0) return;
    best[s * gridDim.x + blockIdx.x] = top.value;
    index[s * gridDim.x + blockIdx.x] = top.choice();
}
