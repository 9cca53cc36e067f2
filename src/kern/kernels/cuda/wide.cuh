// C [rows, n] = X [rows, K] · W [n, K]ᵀ for 9 rows and more: tensor-core products that read W once for up to 64 rows.
//
// Neither X nor its rows' sums fit where those of a few rows do, so both operands come through a ring of shared memory,
// a stage of some k of both at a time. Every block reads all of X that it multiplies from the L2; so that this stays
// below what it reads of W, the blocks of a cluster have the same columns of C, as many as there are registers for, and
// share K. Their sums meet in shared memory. What a row yields does not depend on how many others there are: K is cut
// and summed in the same order whatever their number.
#pragma once
#include "cluster.cuh"
#include "epilogues.cuh"

constexpr int WORKERS = MATVEC_WARPS;  // warps that multiply; the others load weights, or rows of X
constexpr int WEIGHT_THREADS = WIDE_WEIGHT_WARPS * WARP, ROW_THREADS = WIDE_ROW_WARPS * WARP;
constexpr int WIDE_THREADS = THREADS + WEIGHT_THREADS + ROW_THREADS;
constexpr int MOST_ROWS = WIDE_ROWS;  // that one block multiplies
constexpr int MOST_STAGES = 16;
constexpr int M = 16, N = 8;         // of one tensor-core product: columns and rows of C
constexpr int ROW_GROUPS = 2;        // of the warps that multiply, each with half of the rows
constexpr int PIECE_K = 8;           // elements of k in 16 bytes
constexpr int APART = 4;             // floats between the sums of a row and the next, so that they lie in other banks

static_assert(WORKERS == 8, "two groups for rows, and four for columns or k");

// How a product is divided. SPLIT blocks of a cluster share K, and DEEP groups of a block's warps the k of a stage. A
// warp has TILES tiles of 16 rows of W; with PARTS 2 those are 8 rows and their 8 others.
template <int DEPTH, int PARTS_, int SPLIT_, int DEEP_, int TILES_>
struct Division {
    static constexpr int K = DEPTH, PARTS = PARTS_, SPLIT = SPLIT_, DEEP = DEEP_, TILES = TILES_;
    static constexpr int ACROSS = WORKERS / ROW_GROUPS / DEEP;
    static constexpr int BLOCK_TILES = ACROSS * TILES, TILE_COLUMNS = M / PARTS;
    static constexpr int STAGE_K = DEEP == 1 ? 64 : 128, PIECES = STAGE_K / PIECE_K, PITCH = STAGE_K * 2;
    static constexpr int BLOCK_COLUMNS = BLOCK_TILES * TILE_COLUMNS, STAGES = ceil_div(K, STAGE_K);
    static constexpr bool DIRECT = SPLIT == 1 && DEEP == 1;  // a thread's sums are whole
    using Fewer = Division<DEPTH, PARTS, SPLIT, DEEP, (TILES < 5 ? TILES : 5)>;  // tiles, with the same order of sums
    static_assert(ACROSS * DEEP * ROW_GROUPS == WORKERS, "each warp has its part");
};

// The part of the product that one block computes: of K, and of the columns, in passes.
template <class D>
struct Share {
    static constexpr int UNIT = D::PARTS == 1 ? N : D::TILE_COLUMNS;  // columns are shared out by so many
    int cluster, rank, clusters, all, passes, first_stage, stages, turn;

    __device__ explicit Share(int n)
        : cluster(blockIdx.x / D::SPLIT), rank(D::SPLIT > 1 ? rank_in_cluster() : 0), clusters(gridDim.x / D::SPLIT),
          all(ceil_div(n, UNIT)), passes(ceil_div(all, clusters * (D::BLOCK_COLUMNS / UNIT))),
          first_stage(D::STAGES * rank / D::SPLIT), stages(D::STAGES * (rank + 1) / D::SPLIT - first_stage),
          turn(cluster * stages / clusters) {}

    // The first column of a pass; that of the next pass is its end.
    __device__ int begin(int pass) const { return all * (cluster * passes + pass) / (clusters * passes) * UNIT; }

    // Where along K the stage begins that is i-th: blocks begin at different ones, as the L2 would else have to give all
    // of them the same rows of X at once.
    __device__ int depth(int i) const {
        int at = i + turn;
        return (first_stage + (at < stages ? at : at - stages)) * D::STAGE_K;
    }
};

// A place in the ring.
template <int STAGES>
struct Place {
    int stage = 0;
    u32 parity = 0;

    __device__ void advance() {
        if (++stage < STAGES) return;
        stage = 0;
        parity ^= 1;
    }
};

struct WideMemory {
    u64 full[MOST_STAGES], empty[MOST_STAGES];
    float inverse[MOST_ROWS];  // 1 / rms of each row
    __align__(1024) char ring[WIDE_RING_BYTES];

    __device__ static WideMemory& get() {
        static_assert(sizeof(WideMemory) == WIDE_RING_BYTES + 1024, "as much as the launch asks for");
        extern __shared__ __align__(1024) char memory[];
        return *reinterpret_cast<WideMemory*>(memory);
    }
};

// The product for at most R rows.
template <class D, int R>
struct Wide {
    static constexpr int STAGE_ROWS = D::BLOCK_TILES * M + R, STAGE_BYTES = STAGE_ROWS * D::PITCH;
    static constexpr int FITTING = WIDE_RING_BYTES / STAGE_BYTES;
    static constexpr int STAGES = FITTING < MOST_STAGES ? FITTING : MOST_STAGES;
    static constexpr int ROW_TILES = R / N / ROW_GROUPS;  // of a warp
    static constexpr int SUM_PITCH = D::BLOCK_TILES * M + APART, SUMS = R * SUM_PITCH;
        static constexpr int OWN_ROWS = ceil_div(ceil_div(R, D::SPLIT), WORKERS);  // rows that a warp finishes
    static constexpr int OWN_COLUMNS = ceil_div(D::BLOCK_COLUMNS, WARP);                // columns of them that a lane does
    static_assert(STAGES >= 2, "one stage on its way while another is worked on");
    static_assert(D::DIRECT || D::DEEP * SUMS * 4 <= WIDE_RING_BYTES, "room for the sums");

    WideMemory& shared;
    Share<D> share;
    RowSlice slice;
    Place<STAGES> place;

    __device__ char* stage() const { return shared.ring + place.stage * STAGE_BYTES; }

    // Where 16 bytes of a row lie in a stage: so that those of eight rows lie in different banks.
    __device__ static int within(int row, int piece) { return row * D::PITCH + (piece ^ row % 8) * 16; }

    __device__ float* sums(int group) const { return reinterpret_cast<float*>(shared.ring) + group * SUMS; }

    // Every thread between two passes, where sums take the place of stages.
    __device__ void between_passes(int pass) const {
        if (!D::DIRECT && pass + 1 < share.passes) asm volatile("bar.sync 2, %0;" ::"n"(WIDE_THREADS) : "memory");
    }

    __device__ void load_weights(const bf16* w, int n) {
        constexpr int STEP = WEIGHT_THREADS / D::PIECES, COPIES = M / STEP;  // of a thread for a tile
        static_assert(M % STEP == 0, "each thread has the same rows of every tile");
        int thread = threadIdx.x - THREADS, piece = thread % D::PIECES;
        const bf16* base[COPIES];
        int to[COPIES], column[COPIES];
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            int row = thread / D::PIECES + i * STEP, part = D::PARTS == 1 ? 0 : row / N;
            column[i] = D::PARTS == 1 ? row : row % N;
            base[i] = w + (static_cast<i64>(part) * n + column[i]) * D::K + piece * PIECE_K;
            to[i] = within(row, piece);
        }
        for (int pass = 0; pass < share.passes; pass++) {
            int first = share.begin(pass), columns = share.begin(pass + 1) - first, tiles = columns / D::TILE_COLUMNS;
            bool whole = D::K % D::STAGE_K == 0 && first + columns <= n;
            for (int i = 0; i < share.stages; i++) {
                int depth = share.depth(i);
                i64 skipped = static_cast<i64>(first) * D::K + depth;
                char* at = stage();
                wait_for(&shared.empty[place.stage], place.parity ^ 1);
                int tile = 0;
                if (whole) {
#pragma unroll 4
                    for (; tile < tiles; tile++)
#pragma unroll
                        for (int c = 0; c < COPIES; c++)
                            copy_async(at + tile * (M * D::PITCH) + to[c],
                                       base[c] + skipped + tile * (D::TILE_COLUMNS * D::K), true);
                }
                for (; tile * D::TILE_COLUMNS < columns; tile++)
#pragma unroll
                    for (int c = 0; c < COPIES; c++)
                        if (tile * D::TILE_COLUMNS + column[c] < columns)
                            copy_async(at + tile * (M * D::PITCH) + to[c],
                                       base[c] + skipped + static_cast<i64>(tile) * (D::TILE_COLUMNS * D::K),
                                       depth + piece * PIECE_K < D::K && first + tile * D::TILE_COLUMNS + column[c] < n);
                arrive_when_copied(&shared.full[place.stage]);
                place.advance();
            }
            between_passes(pass);
        }
        commit_copies();
        wait_for_copies<0>();
    }

    __device__ void load_rows(const bf16* x) {
        constexpr int STEP = ROW_THREADS / D::PIECES;
        static_assert(STEP % 4 == 0 && R % STEP == 0, "each thread has the same rows of every stage");
        int thread = threadIdx.x - THREADS - WEIGHT_THREADS, piece = thread % D::PIECES, row = thread / D::PIECES;
        const bf16* base = x + (static_cast<i64>(slice.first) + row) * D::K + piece * PIECE_K;
        int to[2] = {within(D::BLOCK_TILES * M + row, piece), within(D::BLOCK_TILES * M + row + STEP, piece)};
        for (int pass = 0; pass < share.passes; pass++) {
            for (int stage_index = 0; stage_index < share.stages; stage_index++) {
                const bf16* from = base + share.depth(stage_index);
                bool inside = share.depth(stage_index) + piece * PIECE_K < D::K;
                char* at = stage();
                wait_for(&shared.empty[place.stage], place.parity ^ 1);
#pragma unroll 8
                for (int i = 0; i < R / STEP; i++)
                    if (row + i * STEP < slice.count)
                        copy_async(at + to[i % 2] + i / 2 * (2 * STEP * D::PITCH), from + i * (STEP * D::K), inside);
                arrive_when_copied(&shared.full[place.stage]);
                place.advance();
            }
            between_passes(pass);
        }
        commit_copies();
        wait_for_copies<0>();
    }

    // This warp's sums of a pass.
    __device__ void multiply(float (&total)[D::TILES][ROW_TILES][4]) {
        constexpr int MINE = D::STAGE_K / D::DEEP;         // of a stage's k
        constexpr int X_K = ROW_TILES == 1 ? 32 : 16;      // of which one load of x takes so much
        constexpr int STEPS = MINE / 16 * D::TILES, AHEAD = 2;
        constexpr int BUFFERS = ROW_TILES > 4 ? 1 : 2;     // of x, as registers allow
        int lane = lane_index(), across = warp_index() % D::ACROSS, deep = warp_index() / (D::ACROSS * ROW_GROUPS);
        int row_group = warp_index() / D::ACROSS % ROW_GROUPS, piece = deep * MINE / PIECE_K;
        int columns = across * D::TILES * M + lane % 16, rows = D::BLOCK_TILES * M + row_group * ROW_TILES * N + lane % 8;
        for (int i = 0; i < share.stages; i++) {
            const char* at = stage();
            u32 w[AHEAD + 1][4], x[BUFFERS][ROW_TILES == 1 ? 2 : ROW_TILES][2];
            auto load_x = [&](int k, u32 (&to)[ROW_TILES == 1 ? 2 : ROW_TILES][2]) {
#pragma unroll
                for (int j = 0; j < ROW_TILES; j += 2) {
                    u32 four[4];
                    if (ROW_TILES == 1) load_matrices(four, at + within(rows, piece + k / PIECE_K + lane / 8));
                    else load_matrices(four, at + within(rows + (j + lane / 16) * N, piece + k / PIECE_K + lane / 8 % 2));
                    to[j][0] = four[0], to[j][1] = four[1], to[j + 1][0] = four[2], to[j + 1][1] = four[3];
                }
            };
            auto load_w = [&](int step) {
                int k = step / D::TILES * 2 + lane / 16;
                load_matrices(w[step % (AHEAD + 1)], at + within(columns + step % D::TILES * M, piece + k));
            };
            wait_for(&shared.full[place.stage], place.parity);
            load_x(0, x[0]);
#pragma unroll
            for (int step = 0; step < AHEAD; step++)
                if (step < STEPS) load_w(step);
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                int k = step / D::TILES * 16, next = (k / X_K + 1) * X_K;
                if (step + AHEAD < STEPS) load_w(step + AHEAD);
                if (BUFFERS == 1 && step > 0 && step % D::TILES == 0) load_x(k, x[0]);
                if (BUFFERS == 2 && step % (X_K / 16 * D::TILES) == 0 && next < MINE) load_x(next, x[next / X_K % 2]);
                const u32(&of)[4] = w[step % (AHEAD + 1)];
#pragma unroll
                for (int j = 0; j < ROW_TILES; j++) {
                    const u32(&pair)[2] = x[k / X_K % BUFFERS][ROW_TILES == 1 ? k / 16 % 2 : j];
                    mma(total[step % D::TILES][j], of[0], of[1], of[2], of[3], pair[0], pair[1]);
                }
            }
            __syncwarp();
            if (lane == 0) arrive(&shared.empty[place.stage]);
            place.advance();
        }
    }

    // Calls `take` for each sum of this warp with its row and its place among the rows of W.
    template <class Take>
    __device__ static void each(const float (&total)[D::TILES][ROW_TILES][4], Take take) {
        int across = warp_index() % D::ACROSS, row_group = warp_index() / D::ACROSS % ROW_GROUPS;
        int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
        for (int i = 0; i < D::TILES; i++)
#pragma unroll
            for (int j = 0; j < ROW_TILES; j++)
#pragma unroll
                for (int c = 0; c < 2; c++)
                    take((row_group * ROW_TILES + j) * N + 2 * t + c, (across * D::TILES + i) * M + g, total[i][j][c],
                         total[i][j][c + 2]);
    }

    // Whole sums become results at once.
    template <class Epilogue>
    __device__ void store(const float (&total)[D::TILES][ROW_TILES][4], int pass, int n, Epilogue epilogue) const {
        int first = share.begin(pass), end = min(share.begin(pass + 1), n);
        each(total, [&](int row, int column, float sum, float other) {
            if (row >= slice.count) return;
            int output = first + (D::PARTS == 1 ? column : column / M * N + column % N);
            epilogue.rms.inverse = shared.inverse[row];
            if (D::PARTS == 1) {
                epilogue.store(slice.first + row, output, output < end, sum, 0.0f, {});
                epilogue.store(slice.first + row, output + N, output + N < end, other, 0.0f, {});
            } else {
                epilogue.store(slice.first + row, output, output < end, sum, other, {});
            }
        });
    }

    // The sums of each group of warps in its place.
    __device__ void keep(const float (&total)[D::TILES][ROW_TILES][4]) const {
        float* mine = sums(warp_index() / (D::ACROSS * ROW_GROUPS));
        sync_workers();  // the ring is free
        each(total, [&](int row, int column, float sum, float other) {
            mine[row * SUM_PITCH + column] = sum;
            mine[row * SUM_PITCH + column + N] = other;
        });
    }

    // Those of all groups in the first one's place.
    __device__ void add_groups() const {
        if (D::DEEP == 1) return;
        sync_workers();
        for (int at = threadIdx.x; at < slice.count * SUM_PITCH / 4; at += THREADS) {
            float4 sum = reinterpret_cast<float4*>(sums(0))[at];
#pragma unroll
            for (int group = 1; group < D::DEEP; group++) {
                float4 more = reinterpret_cast<float4*>(sums(group))[at];
                sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
            }
            reinterpret_cast<float4*>(sums(0))[at] = sum;
        }
    }

    // The rows of the slice that this warp finishes.
    __device__ int own_row(int i) const { return (i * WORKERS + warp_index()) * D::SPLIT + share.rank; }

    template <class Epilogue>
    __device__ void work(int n, const Epilogue& epilogue) {
        if constexpr (D::DIRECT) {
            for (int row = warp_index(); row < slice.count; row += WORKERS) {
                Rms rms = epilogue.rms;
                rms.begin(slice.first + row);
                rms.settle();
                if (lane_index() == 0) shared.inverse[row] = rms.inverse;
            }
            sync_workers();
            for (int pass = 0; pass < share.passes; pass++) {
                float total[D::TILES][ROW_TILES][4] = {};
                multiply(total);
                store(total, pass, n, epilogue);
            }
        } else {
            finish_rows(n, epilogue);
        }
    }

    template <class Epilogue>
    __device__ void finish_rows(int n, const Epilogue& epilogue) {
        Epilogue of_row[OWN_ROWS];
#pragma unroll
        for (int i = 0; i < OWN_ROWS; i++) {
            of_row[i] = epilogue;
            if (own_row(i) < slice.count) {
                of_row[i].begin(slice.first + own_row(i));
                of_row[i].settle();
            }
        }
        for (int pass = 0; pass < share.passes; pass++) {
            float total[D::TILES][ROW_TILES][4] = {};
            int first = share.begin(pass), columns = min(share.begin(pass + 1), n) - first;
            multiply(total);
            keep(total);
            typename Epilogue::Needed needed[OWN_ROWS][OWN_COLUMNS];
#pragma unroll
            for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
                for (int c = 0; c < OWN_COLUMNS; c++) {
                    int column = c * WARP + lane_index();
                    bool mine = own_row(i) < slice.count && column < columns;
                    needed[i][c] = of_row[i].load(slice.first + own_row(i), first + column, mine);
                }
            add_groups();
            if (D::SPLIT > 1) sync_cluster();
            else sync_workers();
#pragma unroll
            for (int i = 0; i < OWN_ROWS; i++) {
                if (own_row(i) >= slice.count) continue;
#pragma unroll
                for (int c = 0; c < OWN_COLUMNS; c++) {
                    int column = c * WARP + lane_index();
                    float both[D::PARTS] = {};
                    if (column < columns) add_all(both, own_row(i), column);
                    of_row[i].store(slice.first + own_row(i), first + column, column < columns, both[0],
                                    both[D::PARTS - 1], needed[i][c]);
                }
            }
            if (D::SPLIT > 1) sync_cluster();  // a block's memory outlives the others' last look at it
            else sync_workers();
            between_passes(pass);
        }
#pragma unroll
        for (int i = 0; i < OWN_ROWS; i++)
            if (own_row(i) < slice.count) finish(of_row[i], slice.first + own_row(i));
    }

    // The sums of a column, and of its other, of all blocks in their order.
    __device__ void add_all(float (&both)[D::PARTS], int row, int column) const {
#pragma unroll
        for (int part = 0; part < D::PARTS; part++) {
            int at = D::PARTS == 1 ? column : column / N * M + column % N + part * N;
            const float* here = sums(0) + row * SUM_PITCH + at;
            if (D::SPLIT == 1) both[part] = *here;
            else {
                float of_rank[D::SPLIT];
#pragma unroll
                for (int rank = 0; rank < D::SPLIT; rank++) of_rank[rank] = load_from(place_in(rank, here));
#pragma unroll
                for (int rank = 0; rank < D::SPLIT; rank++) both[part] += of_rank[rank];
            }
        }
    }

    template <class Epilogue>
    __device__ void finish(const Epilogue& epilogue, int row) const {
        epilogue.finish(row);
    }

    // A row has a partial sum of squares for each block of other products: what no block here adds is zero.
    __device__ void finish(const Residual& epilogue, int row) const {
        epilogue.finish(row);
        for (int at = lane_index(); at < SQUARES; at += WARP)
            if (at / D::SPLIT % share.clusters == share.cluster && at != blockIdx.x)
                epilogue.squares[static_cast<i64>(row) * SQUARES + at] = 0.0f;
    }
};

// Where warps have different needs, registers move from those that load to those that multiply.
template <int R>
__device__ inline void take_registers(bool worker) {
#if WIDE_ROWS > 64
    if (R <= 64) return;
    if (worker) asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
#endif
}

template <class D, int R, class Epilogue>
__device__ inline void multiply_rows(const Epilogue& epilogue, const bf16* x, const bf16* w, const RowSlice& slice, int n) {
    Wide<D, R> wide{WideMemory::get(), Share<D>(n), slice};
    if (threadIdx.x == 0) {
        for (int i = 0; i < wide.STAGES; i++) {
            init_barrier(&wide.shared.full[i], WEIGHT_THREADS + ROW_THREADS);
            init_barrier(&wide.shared.empty[i], WORKERS);
        }
        publish_barriers();
    }
    __syncthreads();
    if (threadIdx.x >= THREADS) {
        take_registers<R>(false);
        if (threadIdx.x < THREADS + WEIGHT_THREADS) {
            wide.load_weights(w, n);
        } else {
            wait_for_previous_kernels();
            start_next_kernel();
            wide.load_rows(x);
        }
    } else {
        take_registers<R>(true);
        wait_for_previous_kernels();
        start_next_kernel();
        wide.work(n, epilogue);
    }
}

template <class D, class Epilogue>
__device__ inline void multiply_wide(const Epilogue& epilogue, const bf16* x, const bf16* w, int rows, int n, int k) {
    expect(k, D::K);
    RowSlice slice(rows, MOST_ROWS);
    if (slice.count <= 16) multiply_rows<D, 16>(epilogue, x, w, slice, n);
    else if (slice.count <= 32) multiply_rows<D, 32>(epilogue, x, w, slice, n);
    else if (slice.count <= 64) multiply_rows<D, 64>(epilogue, x, w, slice, n);
#if WIDE_ROWS > 64
    else multiply_rows<typename D::Fewer, 128>(epilogue, x, w, slice, n);
#endif
}
