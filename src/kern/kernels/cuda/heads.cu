// A chunk's queries and keys normed and rotated, its keys and values written into the paged pool: a warp per head.
#include "heads.cuh"
#include "pages.cuh"

constexpr int HEAD_WARPS = 8;

struct Chunk {
    bf16* qkv;
    const bf16 *q_norm, *k_norm;  // null: no norms
    const i64* positions;
    const float* cos_sin;
    bf16* pool;
    const i64* slots;
    int q_heads, kv_heads, row_stride;
    i64 page_stride;
    float eps;
};

__device__ static void rotate_and_cache(const Chunk& chunk) {
    start_next_kernel();
    wait_for_previous_kernels();
    i64 token = blockIdx.x;
    int head = blockIdx.y * HEAD_WARPS + warp_index();
    if (head >= chunk.q_heads + 2 * chunk.kv_heads) return;
    bool is_query = head < chunk.q_heads, is_value = head >= chunk.q_heads + chunk.kv_heads;
    bf16* at = chunk.qkv + token * chunk.row_stride + head * HEAD_DIM;
    Head held = load_head(at);
    if (!is_value) {
        const bf16* norm = is_query ? chunk.q_norm : chunk.k_norm;
        if (norm != nullptr) norm_head(held, norm, chunk.eps);
        rotate_head(held, Angles(chunk.cos_sin + load_fresh<i64>(chunk.positions + token) * HEAD_DIM));
    }
    if (is_query) {
        store_head(at, held);
        return;
    }
    i64 slot = load_fresh<i64>(chunk.slots + token);
    if (slot < 0) return;
    Pool pool{chunk.pool, chunk.page_stride, chunk.kv_heads};
    bf16* to = pool.keys(slot / PAGE, (head - chunk.q_heads) % chunk.kv_heads) + slot % PAGE * HEAD_DIM;
    store_head(is_value ? to + pool.values_offset() : to, held);
}

KERNEL(HEAD_WARPS * WARP, 1)
norm_rope_cache(bf16* qkv, const bf16* q_norm, const bf16* k_norm, const i64* positions, const float* cos_sin,
                bf16* pool, const i64* slots, int q_heads, int kv_heads, int dim, int row_stride,
                i64 page_stride, float eps) {
    expect(dim, HEAD_DIM);
    rotate_and_cache({qkv, q_norm, k_norm, positions, cos_sin, pool, slots, q_heads, kv_heads, row_stride, page_stride,
                      eps});
}

KERNEL(HEAD_WARPS * WARP, 1)
rope_cache(bf16* qkv, const i64* positions, const float* cos_sin, bf16* pool, const i64* slots, int q_heads,
           int kv_heads, int dim, int row_stride, i64 page_stride) {
    expect(dim, HEAD_DIM);
    rotate_and_cache({qkv, nullptr, nullptr, positions, cos_sin, pool, slots, q_heads, kv_heads, row_stride,
                      page_stride, 0.0f});
}
