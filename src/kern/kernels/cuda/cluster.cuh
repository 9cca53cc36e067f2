// Blocks of a cluster (sm_90 and later): signals to each other, and loads from another's shared memory.
#pragma once
#include "bulk.cuh"

__device__ inline u32 rank_in_cluster() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all its blocks meet: first each says that it has come, and may then do other things before it waits.
__device__ inline void arrive_in_cluster() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ inline void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

__device__ inline void sync_cluster() {
    arrive_in_cluster();
    wait_for_cluster();
}

// The place in the other block's shared memory that `here` is in this one's.
__device__ inline u32 at_other(const void* here) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(here)), "r"(rank_in_cluster() ^ 1));
    return there;
}

// What this block has done is done for those who wait at the other's barrier.
__device__ inline void arrive_at_other(const u64* barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(at_other(barrier)) : "memory");
}

// Wait for the other block's first arrival at this block's barrier.
__device__ inline void wait_for_other(const u64* barrier) {
    u32 over;
    do asm volatile(
        "{\n.reg .pred over;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%1], 0;\n"
        "selp.u32 %0, 1, 0, over;\n}"
        : "=r"(over)
        : "r"(shared_address(barrier))
        : "memory");
    while (over == 0);
}

__device__ inline float load_from_other(const float* here) {
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(at_other(here)) : "memory");
    return value;
}

// The place in the shared memory of the block of this rank that `here` is in this one's.
__device__ inline u32 place_in(u32 rank, const void* here) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(here)), "r"(rank));
    return there;
}

__device__ inline float load_from(u32 place) {
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(place) : "memory");
    return value;
}
