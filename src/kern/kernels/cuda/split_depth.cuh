// Products whose K two blocks share, because the rows of X are too long for the registers of one: each multiplies its
// half for the columns of both, and then sums both halves for every other tile.
#pragma once
#include "bulk_stream.cuh"
#include "operand.cuh"

constexpr int MOST_TILES = 2 * BATCH;  // whose sums a block keeps

template <class Memory>
__device__ inline float sum_of_both(Memory& shared, int tile, int row, int column) {
    float halves[2] = {shared.sum(tile, row, 0, column), 0.0f};
#pragma unroll
    for (int warp = 0; warp < MATVEC_WARPS; warp++)
        halves[1] += load_from_other(&shared.part(tile, warp, row, 0, column));
    return halves[0] + halves[1];  // the same in whichever order
}

template <class Stream, class X, class Epilogue>
__device__ inline void run_split(Stream& stream, const X& x, const RowSlice& slice, Epilogue epilogue) {
    const Outputs& outputs = stream.outputs;
    auto& shared = stream.shared;
    if (outputs.tiles > MOST_TILES) __trap();
    int in_slice = warp_index(), row = slice.first + in_slice, column = lane_index() % TILE;
    int tile = lane_index() / TILE * 2 + rank_in_cluster(), output = outputs.begin(tile) + column;
    bool has_row = in_slice < slice.count, mine = tile < outputs.tiles && output < outputs.begin(tile + 1);
    typename Epilogue::Needed needed{};
    if (has_row) {
        epilogue.begin(row);
        needed = epilogue.load(row, output, mine);
    }
    for (int next = 0; next < outputs.tiles; next++) stream.multiply(next, x);
    sync_workers();
    if (threadIdx.x == 0) arrive_at_other(&shared.met());
    wait_for_other(&shared.met());
    if (has_row) {
        epilogue.settle();
        epilogue.store(row, output, mine, mine ? sum_of_both(shared, tile, in_slice, column) : 0.0f, 0.0f, needed);
        epilogue.finish(row);
    }
    // A block's memory outlives the other's last look at it.
    sync_workers();
    if (threadIdx.x == 0) {
        arrive_at_other(&shared.read());
        wait_for_other(&shared.read());
    }
}
