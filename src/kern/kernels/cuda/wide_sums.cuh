// What becomes of the sums of a product of many rows: those of a cluster's blocks as one, and results of whole sums.
#pragma once
#include "epilogues.cuh"
#include "wide.cuh"

// c = sum / rms, which is known
template <class C>
struct Scaled : NothingLoaded {
    C* c;
    int n, first;
    const float* inverse;  // of rows from `first` on

    Scaled() = default;
    __device__ Scaled(C* c, int n, int first, const float* inverse) : c(c), n(n), first(first), inverse(inverse) {}
    __device__ void store(int row, int output, bool mine, float sum, float, const Needed&) const {
        if (mine) store_as(c + static_cast<i64>(row) * n + output, sum * inverse[row - first]);
    }
};

// A row of the residual stream has a partial sum of squares for each block of other products, which may be more.
struct WideResidual : Residual {
    WideResidual() = default;
    __device__ explicit WideResidual(const Residual& residual) : Residual(residual) {}
    __device__ void finish(int row) const {
        Residual::finish(row);
        for (int more = gridDim.x + blockIdx.x; more < SQUARES; more += gridDim.x)
            if (lane_index() == 0) squares[static_cast<i64>(row) * SQUARES + more] = 0.0f;
    }
};

// 1 / rms of each row of the slice. Each warp asks for the squares of its rows before products begin, all at once, and
// sums them up after them.
template <int N>
struct Inverses {
    static constexpr int ROWS_OF_WARP = N / MATVEC_WARPS;

    float* inverse;
    const RowSlice& slice;
    Rms rms[ROWS_OF_WARP];

    __device__ Inverses(float* inverse, const RowSlice& slice, const float* squares, float eps)
        : inverse(inverse), slice(slice) {
#pragma unroll
        for (int i = 0; i < ROWS_OF_WARP; i++) rms[i].squares = squares, rms[i].eps = eps;
    }
    __device__ static int row(int i) { return warp_index() + i * MATVEC_WARPS; }
    __device__ void begin() {
#pragma unroll
        for (int i = 0; i < ROWS_OF_WARP; i++) rms[i].begin(slice.first + min(row(i), slice.count - 1));
    }
    __device__ void settle() {
#pragma unroll
        for (int i = 0; i < ROWS_OF_WARP; i++) {
            rms[i].settle();
            if (lane_index() == 0 && row(i) < slice.count) inverse[row(i)] = rms[i].inverse;
        }
        sync_workers();
    }
};

// The sums of a cluster's blocks, added in the order of the blocks; each block finishes its share of the columns, the
// lanes of a warp for one row. They take the place of the ring, so there is one pass.
template <class Product, class Epilogue>
__device__ inline void finish_together(const Product& product, const Epilogue& epilogue) {
    constexpr int SPLIT = Product::SPLIT, PITCH = Product::SUM_PITCH, ROWS_OF_WARP = Product::N / MATVEC_WARPS;
    if (product.passes > 1) __trap();
    const RowSlice& slice = product.slice;
    float* sums = reinterpret_cast<float*>(product.shared.ring);
    sync_workers();  // every warp's last products have read the ring
    product.each([&](int column, int row, float sum) {
        if (column < product.count && row < slice.count) sums[row * PITCH + column] = sum;
    });
    int share = ceil_div(product.count, SPLIT), begin = rank_in_cluster() * share;
    int end = min(begin + share, product.count);
    Epilogue of_row[ROWS_OF_WARP];
    typename Epilogue::Needed needed[ROWS_OF_WARP];
#pragma unroll
    for (int i = 0; i < ROWS_OF_WARP; i++) of_row[i] = epilogue;
    auto row = [&](int i) { return warp_index() + i * MATVEC_WARPS; };
    auto load = [&](int column) {
#pragma unroll
        for (int i = 0; i < ROWS_OF_WARP; i++) {
            bool mine = column < end && row(i) < slice.count;
            needed[i] = of_row[i].load(slice.first + row(i), product.first + column, mine);
        }
    };
    load(begin + lane_index());
    sync_cluster();
    for (int from = begin; from < end; from += WARP) {
        int column = from + lane_index();
        float parts[ROWS_OF_WARP][SPLIT];
#pragma unroll
        for (int i = 0; i < ROWS_OF_WARP; i++)
#pragma unroll
            for (int rank = 0; rank < SPLIT; rank++) {
                bool mine = column < end && row(i) < slice.count;
                parts[i][rank] = mine ? load_from(place_in(rank, sums + row(i) * PITCH + column)) : 0.0f;
            }
        if (from != begin) load(column);
#pragma unroll
        for (int i = 0; i < ROWS_OF_WARP; i++) {
            float sum = parts[i][0];
#pragma unroll
            for (int rank = 1; rank < SPLIT; rank++) sum += parts[i][rank];
            bool mine = column < end && row(i) < slice.count;
            of_row[i].store(slice.first + row(i), product.first + column, mine, sum, 0.0f, needed[i]);
        }
    }
    arrive_in_cluster();  // a block's memory outlives the others' last look at it
#pragma unroll
    for (int i = 0; i < ROWS_OF_WARP; i++)
        if (row(i) < slice.count) of_row[i].finish(slice.first + row(i));
    __syncwarp();
    wait_for_cluster();
}
