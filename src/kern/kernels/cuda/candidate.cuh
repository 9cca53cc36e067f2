// The maximum of some values and its index: the lowest of equal ones, or -1 where nothing can be chosen: for values that
// are all -infinity, and for a NaN or +infinity among them.
#pragma once
#include "kernel.cuh"

struct Candidate {
    float value;  // +infinity for a NaN too: nothing beats it
    int index;

    __device__ static Candidate none() { return {-CUDART_INF_F, -1}; }

    // fminf of a NaN and a number is the number.
    __device__ static Candidate of(float value, int index) { return {fminf(value, CUDART_INF_F), index}; }

    __device__ bool beats(const Candidate& other) const {
        return value > other.value || (value == other.value && index < other.index);
    }

    __device__ int choice() const { return value < CUDART_INF_F ? index : -1; }
};

// The best of `LANES` neighbouring lanes, a power of two, in each of them.
template <int LANES>
__device__ inline Candidate best_of_lanes(Candidate best) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) {
        Candidate other{__shfl_xor_sync(ALL_LANES, best.value, offset), __shfl_xor_sync(ALL_LANES, best.index, offset)};
        if (other.beats(best)) best = other;
    }
    return best;
}

__device__ inline Candidate best_of_warp(Candidate best) { return best_of_lanes<WARP>(best); }
