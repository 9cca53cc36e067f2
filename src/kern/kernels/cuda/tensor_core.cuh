// Tensor-core products of bf16 tiles, and the loads that feed them from shared memory.
#pragma once
#include "kernel.cuh"

__device__ inline u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// c [16, 8] += a [16, 16] · b [16, 8]. With g = lane / 4 and t = lane % 4 a lane holds
// a: (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8), pairs along k; b: (2t, g) (2t + 8, g), pairs along k;
// c: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1).
__device__ inline void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four 8 × 8 matrices; lane i names row i % 8 of matrix i / 8, by its address in shared memory.
__device__ inline void load_matrices(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

__device__ inline void load_matrices_transposed(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

__device__ inline void load_matrices(u32 (&to)[4], const void* row) { load_matrices(to, shared_address(row)); }

__device__ inline void load_matrices_transposed(u32 (&to)[4], const void* row) {
    load_matrices_transposed(to, shared_address(row));
}

// 16 bytes to shared memory without waiting; zeros where `valid` is false, and then nothing is read.
__device__ inline void copy_async(u32 to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ inline void copy_async(void* to, const void* from, bool valid) {
    copy_async(shared_address(to), from, valid);
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until at most `PENDING` of the committed groups are under way.
template <int PENDING>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
