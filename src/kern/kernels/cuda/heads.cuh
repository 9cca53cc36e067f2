// One head of a row of queries, keys and values, held by a warp: normed, rotated, stored.
#pragma once
#include "kernel.cuh"

static_assert(HEAD_DIM == 64 || HEAD_DIM == 128, "a lane holds one or two elements of each half of a head");
constexpr int HALF = HEAD_DIM / 2;
constexpr int HELD = HALF / WARP;  // elements of each half that a lane holds: lane · HELD and on

struct Head {
    float low[HELD], high[HELD];  // of the first half, and the elements HALF further on
};

template <class T>
struct alignas(HELD * sizeof(T)) Held {
    T at[HELD];
};

template <class T>
__device__ inline Held<T> held(const T* from) {
    return *reinterpret_cast<const Held<T>*>(from + lane_index() * HELD);
}

// From memory that an earlier kernel of the stream wrote.
__device__ inline Held<bf16> held_fresh(const bf16* from) { return load_fresh<Held<bf16>>(from + lane_index() * HELD); }

__device__ inline Head head_of(const Held<bf16>& low, const Held<bf16>& high) {
    Head head;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        head.low[i] = __bfloat162float(low.at[i]);
        head.high[i] = __bfloat162float(high.at[i]);
    }
    return head;
}

__device__ inline Head load_head(const bf16* from) { return head_of(held_fresh(from), held_fresh(from + HALF)); }

__device__ inline void store_held(bf16* to, const float (&values)[HELD]) {
    Held<bf16> part;
#pragma unroll
    for (int i = 0; i < HELD; i++) part.at[i] = __float2bfloat16(values[i]);
    *reinterpret_cast<Held<bf16>*>(to) = part;
}

__device__ inline void store_head(bf16* to, const Head& head) {
    store_held(to + lane_index() * HELD, head.low);
    store_held(to + HALF + lane_index() * HELD, head.high);
}

__device__ inline Head load_gain(const bf16* weight) { return head_of(held(weight), held(weight + HALF)); }

// head / sqrt(mean(head^2) + eps) · gain
__device__ inline void norm_head(Head& head, const Head& gain, float eps) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; i++) sum += head.low[i] * head.low[i] + head.high[i] * head.high[i];
    float scale = inverse_rms(warp_sum(sum), HEAD_DIM, eps);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        head.low[i] *= scale * gain.low[i];
        head.high[i] *= scale * gain.high[i];
    }
}

__device__ inline void norm_head(Head& head, const bf16* weight, float eps) { norm_head(head, load_gain(weight), eps); }

// A lane's part of a position's row of the table: HALF cosines, then HALF sines.
struct Angles {
    Held<float> cosines, sines;

    Angles() = default;
    __device__ explicit Angles(const float* row) : cosines(held(row)), sines(held(row + HALF)) {}
};

// The halves rotated against each other.
__device__ inline void rotate_head(Head& head, const Angles& angles) {
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float cosine = angles.cosines.at[i], sine = angles.sines.at[i], low = head.low[i], high = head.high[i];
        head.low[i] = low * cosine - high * sine;
        head.high[i] = high * cosine + low * sine;
    }
}
