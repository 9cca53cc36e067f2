// Copies of whole rows to shared memory that one thread asks for (sm_90 and later), and the barriers that count their
// bytes.
#pragma once
#include "kernel.cuh"
#include "tensor_core.cuh"

__device__ inline void init_barrier(u64* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Make the barriers known to the copies.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ inline void arrive_and_expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// True for one lane of a warp, in a way that the compiler can tell.
__device__ inline bool elected() {
    u32 chosen;
    asm volatile("{\n.reg .pred one;\nelect.sync _|one, %1;\nselp.u32 %0, 1, 0, one;\n}" : "=r"(chosen) : "r"(ALL_LANES));
    return chosen != 0;
}

// Wait until the phase of this parity is over.
__device__ inline void wait_for(u64* barrier, u32 parity) {
    u32 over;
    do asm volatile(
        "{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\nselp.u32 %0, 1, 0, over;\n}"
        : "=r"(over)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    while (over == 0);
}

// `bytes`, a multiple of 16, on their way to shared memory; the barrier counts them.
__device__ inline void copy_bulk(void* to, const void* from, u32 bytes, u64* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// The same for what the L2 drops first.
__device__ inline void copy_bulk_once(void* to, const void* from, u32 bytes, u64* barrier) {
    asm volatile(
        "{\n.reg .b64 once;\ncreatepolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], once;\n}"
        ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
