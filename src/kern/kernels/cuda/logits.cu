// What is read off a row of logits: the maximum, in two steps, and the negative log-likelihood of a given one.
#include "candidate.cuh"

constexpr int LOGIT_THREADS = 256;
constexpr int LOGIT_WARPS = LOGIT_THREADS / WARP;
constexpr int PART_LOADS = 10;  // of a thread at once: all there are for 64 parts of 160 000 values
constexpr int FINAL_LOADS = 6;  // and of a lane, for 192 parts

// The maximum of n values, of which this thread has every `stride`-th from `first` on.
template <int LOADS, class Load>
__device__ static Candidate best_of(int first, int n, int stride, Load load) {
    Candidate top = Candidate::none();
    for (int begin = first; begin < n; begin += LOADS * stride) {
        Candidate at_once[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++) at_once[i] = load(min(begin + i * stride, n - 1));  // the last one again: no matter
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            if (at_once[i].beats(top)) top = at_once[i];
    }
    return top;
}

// best[row, part], index[row, part] of a row of n values, which `load` gives with their index; a block per part
template <class Load>
__device__ static void find_part(float* best, int* index, int n, Load load) {
    int parts = gridDim.x, part = blockIdx.x;
    int first = static_cast<i64>(n) * part / parts, last = static_cast<i64>(n) * (part + 1) / parts;
    Candidate top = best_of<PART_LOADS>(first + threadIdx.x, last, LOGIT_THREADS, load);
    __shared__ Candidate tops[LOGIT_WARPS];
    top = best_of_warp(top);
    if (lane_index() == 0) tops[warp_index()] = top;
    __syncthreads();
    if (warp_index() > 0) return;
    top = best_of_warp(tops[lane_index() % LOGIT_WARPS]);
    if (lane_index() > 0) return;
    best[blockIdx.y * parts + part] = top.value;
    index[blockIdx.y * parts + part] = top.choice();
}

KERNEL(LOGIT_THREADS, 1)
argmax_partial(float* best, int* index, const float* values, int n) {
    start_next_kernel();
    wait_for_previous_kernels();
    const float* row = values + static_cast<i64>(blockIdx.y) * n;
    find_part(best, index, n, [&](int i) { return Candidate::of(load_fresh<float>(row + i), i); });
}

// The same of logits += delta, where delta is [row, n] and logits [row, rows - 1, n], the first of each
KERNEL(LOGIT_THREADS, 1)
add_argmax_partial(float* best, int* index, float* logits, const float* delta, int n, int rows) {
    start_next_kernel();
    wait_for_previous_kernels();
    float* to = logits + static_cast<i64>(blockIdx.y) * (rows - 1) * n;
    const float* row = delta + static_cast<i64>(blockIdx.y) * n;
    int first = static_cast<i64>(n) * blockIdx.x / gridDim.x, last = static_cast<i64>(n) * (blockIdx.x + 1) / gridDim.x;
    for (int i = first + threadIdx.x; i < last; i += LOGIT_THREADS)
        to[i] = load_fresh<float>(to + i) + load_fresh<float>(row + i);
    __syncthreads();
    find_part(best, index, n, [&](int i) { return Candidate::of(load_fresh<float>(to + i), i); });
}

// next[row · stride] from the parts' best and index; a warp per row
KERNEL(WARP, 1)
argmax_final(i64* next, const float* best, const int* index, int parts, int stride) {
    start_next_kernel();
    wait_for_previous_kernels();
    int row = blockIdx.x;
    best += row * parts, index += row * parts;
    Candidate top = best_of<FINAL_LOADS>(lane_index(), parts, WARP, [&](int i) {
        return Candidate::of(load_fresh<float>(best + i), load_fresh<int>(index + i));
    });
    top = best_of_warp(top);
    if (lane_index() == 0) next[static_cast<i64>(row) * stride] = top.choice();
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

// nll[t] = log(sum(e^logits[t])) - logits[t, targets[t]]; NaN for a NaN or +infinity in the row, for nothing but -infinity,
// and for a target outside the row
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
