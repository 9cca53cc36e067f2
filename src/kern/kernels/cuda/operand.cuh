// The rows of X that a warp multiplies with: its own part of K, the same for every tile of W. A lane has 16 bytes of one
// row for each step, as the products take them, in registers as far as they go; zeros where there are fewer rows.
#pragma once
#include "matvec.cuh"

template <class Stream, class X>
struct Operand {
    static constexpr int STEPS = Stream::TILE_STEPS, HELD = STEPS < MATVEC_HELD_CHUNKS ? STEPS : MATVEC_HELD_CHUNKS;
    static_assert(STEPS - HELD <= Stream::Memory::LEFT, "room for what is left");

    static constexpr int AT_ONCE = 12;

    typename Stream::Memory& shared;
    bool has_row;
    uint4 held[HELD];

    __device__ Operand(typename Stream::Memory& shared, const RowSlice& slice, const X* x)
        : shared(shared), has_row(lane_index() / 4 < slice.count) {
        i64 row = slice.first + lane_index() / 4;
        const X* from = x + row * Stream::PITCH + Stream::first() + lane_index() % 4 * LANE_K;
        // What goes to memory first, and not all of it at once: registers are short here.
#pragma unroll
        for (int begin = HELD; begin < STEPS; begin += AT_ONCE) {
            uint4 left[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (begin + i < STEPS) left[i] = load(from, begin + i);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (begin + i < STEPS && has_row) shared.left(begin + i - HELD) = left[i];
            __syncwarp();
        }
#pragma unroll
        for (int step = 0; step < HELD; step++) held[step] = load(from, step);
    }

    // The first and third word for one product, then the second and fourth for the other.
    __device__ uint4 load(const X* from, int step) const {
        if (!has_row || !Stream::has(step)) return {};
        uint4 x = eight(from + Stream::chunk(step) * CHUNK);
        return {x.x, x.z, x.y, x.w};
    }

    __device__ static uint4 eight(const bf16* from) { return load_fresh<uint4>(from); }

    // Rounded.
    __device__ static uint4 eight(const float* from) {
        float4 low = load_fresh<float4>(from), high = load_fresh<float4>(from + 4);
        return {bits_of(__floats2bfloat162_rn(low.x, low.y)), bits_of(__floats2bfloat162_rn(low.z, low.w)),
                bits_of(__floats2bfloat162_rn(high.x, high.y)), bits_of(__floats2bfloat162_rn(high.z, high.w))};
    }

    __device__ uint4 at(int step) const {
        if (step < HELD) return held[step];
        return has_row ? shared.left(step - HELD) : uint4{};
    }
};
