// What every kernel here shares: types, 16-byte accesses, sums over a warp, programmatic dependent launch.
#pragma once
#include <cuda_bf16.h>
#include <math_constants.h>

typedef __nv_bfloat16 bf16;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

__device__ inline int lane_index() { return threadIdx.x % WARP; }
__device__ inline int warp_index() { return threadIdx.x / WARP; }

// Sizes that are compiled in are parameters too: another value is an error of the caller.
__device__ inline void expect(int value, int compiled) {
    if (value != compiled) __trap();
}

// Let the next kernel of the stream start as soon as there is room for its blocks; it waits before it reads results.
// Products, and the first kernel of attention over a split context, call it once their own wait is over: what comes
// after one of them may count on all that came before it. Short kernels call it first, so that the product after them
// has its weights on their way while the one before them ends; what comes after a short kernel may read nothing before
// its wait that ever changes.
__device__ inline void start_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Wait until the kernels before this one have finished and their writes can be seen.
__device__ inline void wait_for_previous_kernels() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The row of a table for an id. Below 0 no token was chosen; the row is any, for what comes of it is dropped.
__device__ inline i64 row_of(i64 id) { return id < 0 ? 0 : id; }

// Eight bf16 as they are loaded.
struct alignas(16) Bf16x8 {
    __nv_bfloat162 pair[4];
};

struct alignas(8) Bf16x4 {
    __nv_bfloat162 pair[2];
};

// Loads of what another kernel wrote go to the L2: the L1 of this multiprocessor may hold an older copy. They are
// volatile, so that none is moved across a wait.
template <class T>
__device__ inline T load_fresh(const void* address) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "one load");
    T value;
    if constexpr (sizeof(T) == 16) {
        uint4 bits = __ldcg(static_cast<const uint4*>(address));
        memcpy(&value, &bits, 16);
    } else if constexpr (sizeof(T) == 8) {
        uint2 bits = __ldcg(static_cast<const uint2*>(address));
        memcpy(&value, &bits, 8);
    } else if constexpr (sizeof(T) == 4) {
        u32 bits = __ldcg(static_cast<const u32*>(address));
        memcpy(&value, &bits, 4);
    } else {
        unsigned short bits = __ldcg(static_cast<const unsigned short*>(address));
        memcpy(&value, &bits, 2);
    }
    return value;
}

__device__ inline u32 bits_of(__nv_bfloat162 pair) {
    u32 bits;
    memcpy(&bits, &pair, 4);
    return bits;
}

template <class T>
__device__ inline T warp_sum(T value) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(ALL_LANES, value, offset);
    return value;
}

// x / (1 + e^-x)
__device__ inline float silu(float x) { return x / (1.0f + __expf(-x)); }

__device__ inline float inverse_rms(float sum_of_squares, int n, float eps) {
    return rsqrtf(sum_of_squares / n + eps);
}
