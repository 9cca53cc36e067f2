// What is read off a row of logits: the greatest, in two steps, and the negative log-likelihood of a given one.
// Ties go to the lowest index; a NaN wins only over other NaNs.
#include "kernel.cuh"

constexpr int LOGIT_THREADS = 256;
constexpr int LOGIT_WARPS = LOGIT_THREADS / WARP;

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

__device__ static Candidate best_of_warp(Candidate best) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        Candidate other{__shfl_xor_sync(ALL_LANES, best.value, offset), __shfl_xor_sync(ALL_LANES, best.index, offset)};
        if (other.beats(best)) best = other;
    }
    return best;
}

// best[row, part], index[row, part] of values [row, n]; a block a part
KERNEL(LOGIT_THREADS, 1)
argmax_partial(float* best, int* index, const float* values, int n) {
    start_next_kernel();
    wait_for_previous_kernels();
    int parts = gridDim.x, part = blockIdx.x;
    const float* row = values + static_cast<i64>(blockIdx.y) * n;
    int first = static_cast<i64>(n) * part / parts, last = static_cast<i64>(n) * (part + 1) / parts;
    Candidate top{CUDART_NAN_F, n - 1};
    for (int i = first + threadIdx.x; i < last; i += LOGIT_THREADS) {
        Candidate next{__ldcg(row + i), i};
        if (next.beats(top)) top = next;
    }
    __shared__ Candidate tops[LOGIT_WARPS];
    top = best_of_warp(top);
    if (lane_index() == 0) tops[warp_index()] = top;
    __syncthreads();
    if (warp_index() > 0) return;
    top = best_of_warp(tops[lane_index() % LOGIT_WARPS]);
    if (lane_index() > 0) return;
    best[blockIdx.y * parts + part] = top.value;
    index[blockIdx.y * parts + part] = top.index;
}

// next[row] from the parts' best and index; a warp a row
KERNEL(WARP, 1)
argmax_final(i64* next, const float* best, const int* index, int parts) {
    start_next_kernel();
    wait_for_previous_kernels();
    int row = blockIdx.x;
    Candidate top{CUDART_NAN_F, 0x7fffffff};
    for (int i = lane_index(); i < parts; i += WARP) {
        Candidate other{__ldcg(best + row * parts + i), __ldcg(index + row * parts + i)};
        if (other.beats(top)) top = other;
    }
    top = best_of_warp(top);
    if (lane_index() == 0) next[row] = top.index;
}

// The running sum of e^(x - top), so that a row is read once.
struct LogSum {
    float top, sum;

    __device__ void add(float x) {
        if (x > top) {
            sum = sum * __expf(top - x) + 1.0f;
            top = x;
        } else if (x != -CUDART_INF_F) {
            sum += __expf(x - top);  // also what carries a NaN
        }
    }

    __device__ void add(const LogSum& other) {
        float higher = fmaxf(top, other.top);
        if (higher == -CUDART_INF_F) {
            sum += other.sum;
            return;
        }
        sum = sum * __expf(top - higher) + other.sum * __expf(other.top - higher);
        top = higher;
    }
};

__device__ static LogSum sum_of_warp(LogSum total) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        total.add(LogSum{__shfl_xor_sync(ALL_LANES, total.top, offset), __shfl_xor_sync(ALL_LANES, total.sum, offset)});
    return total;
}

// nll[t] = log(sum(e^logits[t])) - logits[t, targets[t]]; NaN for a target outside the row
KERNEL(LOGIT_THREADS, 1)
token_nll(float* nll, const float* logits, const i64* targets, int n) {
    i64 token = blockIdx.x, target = targets[token];
    const float* row = logits + token * n;
    LogSum total{-CUDART_INF_F, 0.0f};
    for (int i = threadIdx.x; i < n; i += LOGIT_THREADS) total.add(row[i]);
    __shared__ LogSum parts[LOGIT_WARPS];
    total = sum_of_warp(total);
    if (lane_index() == 0) parts[warp_index()] = total;
    __syncthreads();
    if (threadIdx.x > 0) return;
    total = parts[0];
    for (int warp = 1; warp < LOGIT_WARPS; warp++) total.add(parts[warp]);
    bool inside = target >= 0 && target < n;
    nll[token] = inside ? logf(total.sum) + total.top - row[target] : CUDART_NAN_F;
}
