// Products of a warpgroup (sm_90a): C [64, N] += A [64, 16] · B [N, 16]ᵀ with both operands in shared memory. Rows have 64
// elements, 128 bytes, whose pieces of 16 bytes lie where the hardware's 128-byte swizzle puts them: piece ^ row % 8.
#pragma once
#include "tensor_core.cuh"

// Describes rows that begin at a multiple of 1,024 bytes; eight rows are so far from the next eight. In the units of the
// descriptor, 16 bytes, the next 16 elements along K are 2 further.
__device__ inline u64 describe_rows(const void* rows) {
    return static_cast<u64>((shared_address(rows) & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Wait until at most `PENDING` of the committed groups are under way.
template <int PENDING>
__device__ inline void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// What this thread wrote to shared memory, by whatever copies, is seen by products.
__device__ inline void publish_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A thread's four sums of each eight columns of C: with g = lane / 4, t = lane % 4 and 16 rows for each warp
// (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1). Without `add` the product replaces them.
#define FOUR(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)

__device__ inline void product(float (&c)[8], u64 a, u64 b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %10, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7"
        "}, %8, %9, add, 1, 1, 0, 0;\n}"
        : FOUR(0), FOUR(4)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

__device__ inline void product(float (&c)[16], u64 a, u64 b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, %16, %17, add, 1, 1, 0, 0;\n}"
        : SIXTEEN(0)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

__device__ inline void product(float (&c)[32], u64 a, u64 b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
        "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, add, 1, 1, 0, 0;\n}"
        : SIXTEEN(0), SIXTEEN(16)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef FOUR
#undef SIXTEEN
