// The paged pool of keys and values: page p starts at element p · page_stride and holds, for one layer,
// [keys or values][kv_heads][PAGE][HEAD_DIM] in bf16. The pool's address is already that of the layer.
#pragma once
#include "kernel.cuh"

constexpr int PAGE = 16;

struct Pool {
    bf16* base;
    i64 page_stride;
    int kv_heads;

    // The keys of a page for one head: [PAGE, HEAD_DIM].
    __device__ bf16* keys(i64 page, int head) const {
        return base + page * page_stride + static_cast<i64>(head) * PAGE * HEAD_DIM;
    }

    // How far a value lies behind its key, in elements.
    __device__ i64 values_offset() const { return static_cast<i64>(kv_heads) * PAGE * HEAD_DIM; }
};
