// The greatest of some values and where it is. Ties go to the lowest index; a NaN wins only over other NaNs.
#pragma once
#include "kernel.cuh"

struct Candidate {
    float value;
    int index;

    __device__ bool beats(const Candidate& other) const {
        if (isnan(value) || isnan(other.value)) {
            if (isnan(value) != isnan(other.value)) return isnan(other.value);
            return index < other.index;
        }
        return value > other.value || (value == other.value && index < other.index);
    }
};

__device__ inline Candidate best_of_warp(Candidate best) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        Candidate other{__shfl_xor_sync(ALL_LANES, best.value, offset), __shfl_xor_sync(ALL_LANES, best.index, offset)};
        if (other.beats(best)) best = other;
    }
    return best;
}
