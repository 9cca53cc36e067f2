// C [rows, n] = X [rows, K] · W [n, K]ᵀ for 9 rows and more: W is read once for up to 64 of them, by the tensor cores of
// warpgroups. A block computes a range of C's columns, rows of W. Slices along K of these and of X's rows go through a
// ring in shared memory. Each block reads all of X that it multiplies from the L2; where that would be too much compared
// with W, the blocks of a cluster have the same columns and share K. What a row yields does not depend on how many
// others there are: K is cut and summed in the same order for all numbers of rows.
#pragma once
#include "cluster.cuh"
#include "matvec.cuh"
#include "warpgroup.cuh"

constexpr int GROUP = 128, GROUPS = THREADS / GROUP;  // of the threads that multiply
constexpr int LOADERS = 128, WIDE_THREADS = THREADS + LOADERS;
constexpr int WIDE_ROWS = 64;                                // of X that a block multiplies at once
constexpr int ATOM = 64, ATOM_BYTES = ATOM * 2, PIECE = 8;   // elements of a row that products take at once; of 16 bytes
constexpr int TILE_ROWS = 64;                                // of W, in one product
constexpr int MOST_STAGES = 12;

static_assert(GROUPS * GROUP == THREADS, "whole warpgroups");

// Shared memory of a block; tiles have to begin at multiples of 1,024 bytes.
struct WideMemory {
    u64 full[MOST_STAGES], empty[MOST_STAGES];
    float inverse[WIDE_ROWS];  // 1 / rms of each row
    __align__(1024) char ring[WIDE_RING_BYTES];

    __device__ static WideMemory& get() {
        static_assert(sizeof(WideMemory) == WIDE_RING_BYTES + 1024, "as much as the launch asks for");
        extern __shared__ __align__(1024) char memory[];
        return *reinterpret_cast<WideMemory*>(memory);
    }
};

// How a product is divided: SPLIT blocks of a cluster share K, a block has W_ROWS rows of W at once, a multiple of 8, and
// a slice of ATOMS · 64 elements of K. With PAIRS those rows are eight of gate, eight of up and so on, so that a thread
// has both sums of an output.
template <int K_, int SPLIT_, int W_ROWS_, int ATOMS_, bool PAIRS_ = false>
struct Division {
    static constexpr int K = K_, SPLIT = SPLIT_, W_ROWS = W_ROWS_, ATOMS = ATOMS_;
    static constexpr bool PAIRS = PAIRS_;
};

// The product for at most N rows.
template <class D, int N_>
struct Wide {
    static constexpr int K = D::K, SPLIT = D::SPLIT, W_ROWS = D::W_ROWS, ATOMS = D::ATOMS, N = N_;
    static constexpr bool PAIRS = D::PAIRS;
    static constexpr int OUTPUTS = PAIRS ? W_ROWS / 2 : W_ROWS;
    // As many tiles for each group: a product in a branch would wait for the one before it.
    static constexpr int MINE = ceil_div(W_ROWS, TILE_ROWS * GROUPS);
    static constexpr int SLICE = ATOMS * ATOM, SLICES = ceil_div(K, SLICE);
    static constexpr int W_BYTES = W_ROWS * ATOM_BYTES, X_BYTES = N * ATOM_BYTES, STAGE_BYTES = ATOMS * (W_BYTES + X_BYTES);
    static constexpr int TAIL = (MINE * GROUPS * TILE_ROWS - W_ROWS) * ATOM_BYTES;  // what the last tile reads behind W
    static constexpr int FITTING = (WIDE_RING_BYTES - TAIL) / STAGE_BYTES;
    static constexpr int STAGES = FITTING < MOST_STAGES ? FITTING : MOST_STAGES;
    // Slices on their way before one is waited for.
    static constexpr int LAG = STAGES > 6 ? STAGES - 3 : STAGES > 3 ? STAGES - 2 : 1;
    static constexpr int SUM_PITCH = W_ROWS + (20 - W_ROWS % 16) % 16;  // 4 mod 16: rows' sums lie in other banks
    static_assert(W_ROWS % 8 == 0, "whole patterns of the swizzle");
    static_assert(STAGES >= 3, "slices on their way while one is multiplied");
    static_assert(SPLIT == 1 || N * SUM_PITCH * 4 <= WIDE_RING_BYTES, "room for the sums");

    WideMemory& shared;
    RowSlice slice;
    const bf16 *w, *x;
    int n, first, count, passes, share;  // outputs of this cluster, cut into passes of a share each
    int begin, slices;                   // this block's part of K
    float sum[MINE][N / 2];

    __device__ Wide(WideMemory& shared, const RowSlice& slice, const bf16* w, const bf16* x, int n)
        : shared(shared), slice(slice), w(w), x(x + static_cast<i64>(slice.first) * K), n(n) {
        int clusters = gridDim.x / SPLIT, all = ceil_div(n, clusters), rank = SPLIT > 1 ? rank_in_cluster() : 0;
        first = min(static_cast<int>(blockIdx.x) / SPLIT * all, n);
        count = min(all, n - first);
        passes = max(1, ceil_div(count, OUTPUTS));
        share = ceil_div(count, passes);
        begin = rank * SLICES / SPLIT;
        slices = (rank + 1) * SLICES / SPLIT - begin;
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; i++) {
                init_barrier(&shared.full[i], LOADERS / WARP);
                init_barrier(&shared.empty[i], THREADS / WARP);
            }
            publish_barriers();
        }
        __syncthreads();
    }

    __device__ int first_of(int pass) const { return first + pass * share; }
    __device__ int count_of(int pass) const { return min(share, count - pass * share); }
    __device__ char* stage(int index) const { return shared.ring + index * STAGE_BYTES; }
    __device__ char* x_of(int index) const { return stage(index) + ATOMS * W_BYTES; }

    // The threads behind those that multiply: slices into the ring, as far ahead as it has room.
    struct Loader {
        static constexpr int PIECES = SLICE / PIECE, AT_ONCE = LOADERS / PIECES;
        static constexpr int W_COPIES = ceil_div(W_ROWS, AT_ONCE), X_COPIES = ceil_div(N, AT_ONCE);
        static_assert(W_COPIES <= 32, "a bit for each");

        const Wide& of;
        int row, piece, turn, pass = 0, slice = 0;
        const bf16 *from_w[W_COPIES], *from_x;
        u32 there = 0;  // which of these copies there are

        __device__ explicit Loader(const Wide& of) : of(of) {
            int thread = threadIdx.x - THREADS;
            row = thread / PIECES, piece = thread % PIECES;
            turn = static_cast<int>(blockIdx.x / SPLIT) * of.slices / static_cast<int>(gridDim.x / SPLIT);
            from_x = of.x + static_cast<i64>(row) * K + piece * PIECE;
            point();
        }

        // Stand before the first slice of a pass.
        __device__ void point() {
            if (pass >= of.passes) return;
            int outputs = of.count_of(pass);
            there = 0;
#pragma unroll
            for (int i = 0; i < W_COPIES; i++) {
                int r = row + i * AT_ONCE, output = PAIRS ? r / 16 * 8 + r % 8 : r;
                if (r < W_ROWS && output < outputs) there |= 1u << i;
                i64 row_of_w = of.first_of(pass) + output + (PAIRS && r % 16 >= 8 ? of.n : 0);
                from_w[i] = of.w + row_of_w * K + piece * PIECE;
            }
        }

        // Blocks begin at different slices: else the L2 would have to give all of them the same rows of X at once.
        __device__ int depth(int slice) const {
            int at = slice + turn;
            return (of.begin + (at < of.slices ? at : at - of.slices)) * SLICE;
        }

        __device__ bool inside(int depth) const { return K % SLICE == 0 || depth + piece * PIECE < K; }

        __device__ int place(int r) const { return r * ATOM_BYTES + (piece % (ATOM / PIECE) ^ r % 8) * 16; }

        __device__ void load_w(int to, int slice) const {
            int k = depth(slice);
            char* atom = of.stage(to) + piece / (ATOM / PIECE) * W_BYTES;
#pragma unroll
            for (int i = 0; i < W_COPIES; i++)
                if (there >> i & 1) copy_async(atom + place(row + i * AT_ONCE), inside(k) ? from_w[i] + k : of.w, inside(k));
        }

        __device__ void load_x(int to, int slice) const {
            int k = depth(slice);
            char* atom = of.x_of(to) + piece / (ATOM / PIECE) * X_BYTES;
#pragma unroll
            for (int i = 0; i < X_COPIES; i++) {
                int r = row + i * AT_ONCE;
                if (r >= of.slice.count) continue;
                const bf16* from = from_x + static_cast<i64>(i) * AT_ONCE * K + k;
                copy_async(atom + place(r), inside(k) ? from : of.x, inside(k));
            }
        }

        __device__ void advance() {
            if (++slice < of.slices) return;
            slice = 0;
            pass++;
            point();
        }

        // Weights depend on no kernel before this one.
        __device__ void run() {
            int total = of.passes * of.slices, ahead = min(STAGES, of.slices);
            for (int i = 0; i < ahead; i++) load_w(i, i);
            wait_for_previous_kernels();
            int to = 0, landed = 0;
            u32 parity = 1;  // of the stage's last emptying: it is empty at first
            for (int i = 0; i < total + LAG; i++) {
                if (i < total) {
                    if (i >= ahead) {
                        wait_for(&of.shared.empty[to], parity);
                        load_w(to, slice);
                    }
                    load_x(to, slice);
                    advance();
                    if (++to == STAGES) to = 0, parity ^= 1;
                }
                commit_copies();  // an empty group keeps the count of groups
                if (i < LAG) continue;
                wait_for_copies<LAG>();
                publish_to_products();
                __syncwarp();
                if (lane_index() == 0) arrive(&of.shared.full[landed]);
                if (++landed == STAGES) landed = 0;
            }
        }
    };

    // All passes; `finish(pass)` takes the sums of one. `prepare()` runs once the kernels before this one are over.
    template <class Prepare, class Finish>
    __device__ void run(Prepare prepare, Finish finish) {
        if (threadIdx.x >= THREADS) {
            Loader(*this).run();
            return;
        }
        wait_for_previous_kernels();
        start_next_kernel();
        prepare();
        int at = 0, group = __shfl_sync(ALL_LANES, static_cast<int>(threadIdx.x) / GROUP, 0);
        u32 parity = 0;
        for (int pass = 0; pass < passes; pass++) {
            int before = 0;
            for (int i = 0; i < slices; i++) {
                wait_for(&shared.full[at], parity);
                u64 a = describe_rows(stage(at)) + group * (TILE_ROWS * ATOM_BYTES / 16), b = describe_rows(x_of(at));
                begin_products();
#pragma unroll
                for (int atom = 0; atom < ATOMS; atom++)
#pragma unroll
                    for (int k = 0; k < ATOM / 16; k++)
#pragma unroll
                        for (int tile = 0; tile < MINE; tile++) {
                            u64 rows = a + atom * (W_BYTES / 16) + tile * (GROUPS * TILE_ROWS * ATOM_BYTES / 16);
                            product(sum[tile], rows + k * 2, b + atom * (X_BYTES / 16) + k * 2, i + atom + k > 0);
                        }
                commit_products();
                if (i > 0) {
                    wait_for_products<1>();
                    if (lane_index() == 0) arrive(&shared.empty[before]);
                }
                before = at;
                if (++at == STAGES) at = 0, parity ^= 1;
            }
            wait_for_products<0>();
            if (slices > 0 && lane_index() == 0) arrive(&shared.empty[before]);
            settle();
            finish(pass);
        }
    }

    // Sums are read only after the wait before this; they are zero where there is no part of K for this block.
    __device__ void settle() {
#pragma unroll
        for (int tile = 0; tile < MINE; tile++)
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                asm volatile("" : "+f"(sum[tile][i])::"memory");
                if (SLICES < SPLIT && slices == 0) sum[tile][i] = 0.0f;
            }
    }

    // Each of this thread's sums: take(output, row, sum), or with PAIRS take(output, row, gate, up).
    template <class Take>
    __device__ void each(Take take) const {
        int lane = lane_index(), group = threadIdx.x / GROUP, warp = warp_index() % (GROUP / WARP);
#pragma unroll
        for (int mine = 0; mine < MINE; mine++) {
            int tile = mine * GROUPS + group;
#pragma unroll
            for (int j = 0; j < N / 8; j++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int row = j * 8 + lane % 4 * 2 + i;
                    float low = sum[mine][j * 4 + i], high = sum[mine][j * 4 + 2 + i];
                    if constexpr (PAIRS) {
                        take(tile * TILE_ROWS / 2 + warp * 8 + lane / 4, row, low, high);
                    } else {
                        take(tile * TILE_ROWS + warp * 16 + lane / 4, row, low);
                        take(tile * TILE_ROWS + warp * 16 + lane / 4 + 8, row, high);
                    }
                }
        }
    }
};
