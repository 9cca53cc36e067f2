// One token per sequence: its queries and key normed and rotated, its key and value appended to the paged pool, and
// attention over all keys. A block takes all query heads of one key head and a part of the pages, part after part; the
// loads of the next part's first pages are under way while one part ends.
#include "attention_item.cuh"

constexpr int COMBINE_THREADS = 128;

// A warp's pages of an item, every TOKEN_WARPS-th.
__device__ static void attend_pages(ColumnSums& sums, DecodeMemory& shared, const Item& item, const DecodeCall& call) {
    if (item.own_page() >= item.end) return;
    auto& memory = shared.page[warp_index()];
    Pages pages = item.pages(call);
    QueryColumns queries;
    queries.load(shared.q);
    int end = item.end, keys = item.keys, fresh = item.fresh;
#pragma unroll 1
    for (int page = item.own_page(); page < end; page += TOKEN_WARPS) {
        int next = page + TOKEN_WARPS, key = page * PAGE + lane_index() / 4, at = fresh - page * PAGE;
        bool has_fresh = at >= 0 && at < PAGE;  // memory does not have it yet
        const bf16* coming = next < end ? pages.keys_of(next) : nullptr;
        wait_for_copies<1>();
        __syncwarp();
        if (has_fresh) replace_rows<1>(memory.keys, at, shared.key, 1);
        float s[TILES][4];
        score_page(s, queries, memory.keys);
        __syncwarp();
        if (coming) load_page(memory.keys, coming, pages.valid(next));
        else commit_copies();
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] = key + i / 2 * 8 < keys ? s[n][i] * call.scale : -CUDART_INF_F;
        sums.soften(s);
        wait_for_copies<1>();
        __syncwarp();
        if (has_fresh) replace_rows<1>(memory.values, at, shared.value, 1);
        sums.add(s, memory.values);
        __syncwarp();
        if (coming) load_page(memory.values, coming + pages.pool.values_offset(), pages.valid(next));
        else commit_copies();
    }
}

// The warps' sums as one, relative to the largest score among them: the output where there is one part, else a part.
__device__ static void store_sums(DecodeMemory& shared, const ColumnSums& sums, const Item& item,
                                  const DecodeCall& call) {
    int element = lane_index() / 4, column = lane_index() % 4 * 2, warp = warp_index();
    i64 first = (static_cast<i64>(item.seq) * call.pool.kv_heads + call.head()) * GROUP;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int q = 0; q < 2; q++) {
            float total = sums.whole_total(n, q);
            int at = n * TILE_QUERIES + column + q;
            if (element == 0) shared.top[warp][at] = sums.top[n][q], shared.total[warp][at] = total;
        }
#pragma unroll
    for (int begin = 0; begin < GROUP; begin += STAGED) {
        if (begin > 0) __syncthreads();
#pragma unroll
        for (int q = 0; q < 2; q++) {
            int n = begin / TILE_QUERIES, to = column + q - begin % TILE_QUERIES;
            if (to < 0 || to >= STAGED) continue;
#pragma unroll
            for (int m = 0; m < HEAD_DIM / 16; m++) {
                shared.sum[warp][to][m * 16 + element] = sums.sum[n][m][q];
                shared.sum[warp][to][m * 16 + element + 8] = sums.sum[n][m][q + 2];
            }
        }
        __syncthreads();
        int count = min(STAGED, GROUP - begin);
        for (int i = threadIdx.x; i < count * HEAD_DIM / 2; i += TOKEN_THREADS) {
            int from = i / (HEAD_DIM / 2), d = i % (HEAD_DIM / 2) * 2, at = begin + from;
            float top = shared.top[0][at], total = 0.0f;
            float2 sum{0.0f, 0.0f};
#pragma unroll
            for (int w = 1; w < TOKEN_WARPS; w++) top = fmaxf(top, shared.top[w][at]);
            float base = top == -CUDART_INF_F ? 0.0f : top;  // no keys
#pragma unroll
            for (int w = 0; w < TOKEN_WARPS; w++) {
                float factor = exp2f(shared.top[w][at] - base);  // 0 for a warp that had no page
                float2 part = *reinterpret_cast<const float2*>(&shared.sum[w][from][d]);
                sum.x += part.x * factor, sum.y += part.y * factor;
                total += shared.total[w][at] * factor;
            }
            if (item.parts == 1) {
                float scale = total == 0.0f ? 0.0f : 1.0f / total;
                *reinterpret_cast<__nv_bfloat162*>(call.out + (first + at) * HEAD_DIM + d) =
                    __floats2bfloat162_rn(sum.x * scale, sum.y * scale);
                continue;
            }
            i64 to = (first + at) * TOKEN_PARTS + item.part;
            *reinterpret_cast<float2*>(call.sums + to * HEAD_DIM + d) = sum;
            if (d == 0) *reinterpret_cast<float2*>(call.weights + to * 2) = make_float2(top, total);
        }
    }
}

// All but the rows of queries, keys and values is older than the product that makes these, and is read before the
// wait: the pages' first loads are then under way while that product ends.
__device__ static void attend_tokens(const DecodeCall& call, const Norms& norms) {
    extern __shared__ __align__(256) char bytes[];
    auto& shared = *reinterpret_cast<DecodeMemory*>(bytes);
    auto& memory = shared.page[warp_index()];
    Work work(shared.work, call.seq_lens, call.seqs, call.pages, call.pool.kv_heads);
    if (work.left == 0) {
        // One block waits in any case: this kernel is not over before those ahead of it.
        if (blockIdx.x == 0) wait_for_previous_kernels();
        return;
    }
    Item item(work, call.pages);
    Ahead ahead(item, call);
    load_gains(shared, norms);
    ahead.load_page_of(item, memory, call);
    Rows rows;
    rows.load_angles(ahead, call);
    wait_for_previous_kernels();
    start_next_kernel();
    rows.load(item, call);
    wait_for_copies<2>();  // the gains; the two after them are the page's
    __syncthreads();
    while (true) {
        // Opaque, so that addresses are computed for each item rather than kept in registers for all of them.
        u32 here = 0;
        asm volatile("" : "+r"(here));
        auto& shared = *reinterpret_cast<DecodeMemory*>(bytes + here);
        auto& memory = shared.page[warp_index()];
        int length_after = load_fresh<int>(call.seq_lens + min(work.seq + 1, call.seqs - 1));
        rows.store(shared, item, ahead.slot, call, norms);
        __syncthreads();
        bool more = --work.left > 0;
        if (more) {
            if (++work.part == item.parts) work.part = 0, work.seq++, work.length = length_after;
            ahead = Ahead(Item(work, call.pages), call);
        }
        ColumnSums sums;
        sums.clear();
        attend_pages(sums, shared, item, call);
        asm volatile("" : "+r"(work.seq), "+r"(work.part), "+r"(work.length));  // computed again, not kept
        Item next(work, call.pages);
        if (more) {
            ahead.load_page_of(next, memory, call);
            rows.load_angles(ahead, call);
            rows.load(next, call);
        }
        store_sums(shared, sums, item, call);
        if (!more) break;
        item = next;
    }
}

KERNEL(TOKEN_THREADS, TOKEN_BLOCKS)
append_attention_partial(bf16* out, float* sums, float* weights, const bf16* qkv, const i64* positions,
                         const float* cos_sin, bf16* pool, const i64* slots, const int* block_table,
                         const int* seq_lens, int seqs, int pages, int q_heads, int kv_heads, int dim, int row_stride,
                         i64 page_stride, float scale) {
    expect(dim, HEAD_DIM);
    expect(q_heads, GROUP * kv_heads);
    attend_tokens({out, sums, weights, qkv, positions, cos_sin, {pool, page_stride, kv_heads}, slots, block_table,
                   seq_lens, seqs, pages, row_stride, scale * LOG2_E},
                  {nullptr, nullptr, 0.0f});
}

KERNEL(TOKEN_THREADS, TOKEN_BLOCKS)
norm_append_attention_partial(bf16* out, float* sums, float* weights, const bf16* qkv, const bf16* q_norm,
                              const bf16* k_norm, const i64* positions, const float* cos_sin, bf16* pool,
                              const i64* slots, const int* block_table, const int* seq_lens, int seqs, int pages,
                              int q_heads, int kv_heads, int dim, int row_stride, i64 page_stride, float eps,
                              float scale) {
    expect(dim, HEAD_DIM);
    expect(q_heads, GROUP * kv_heads);
    attend_tokens({out, sums, weights, qkv, positions, cos_sin, {pool, page_stride, kv_heads}, slots, block_table,
                   seq_lens, seqs, pages, row_stride, scale * LOG2_E},
                  {q_norm, k_norm, eps});
}

// out [seqs, q_heads · HEAD_DIM] of the sequences that have several parts; a warp per head.
KERNEL(COMBINE_THREADS, 1)
attention_combine(bf16* out, const float* sums, const float* weights, const int* seq_lens, int pages, int q_heads) {
    start_next_kernel();
    static_assert(TOKEN_PARTS <= WARP, "a lane looks after each part");
    constexpr int EACH = HEAD_DIM / WARP, AT_ONCE = 4;
    struct alignas(EACH * 4) Elements {
        float at[EACH];
    };
    struct alignas(EACH * 2) Rounded {
        bf16 at[EACH];
    };
    int head = blockIdx.x * (COMBINE_THREADS / WARP) + warp_index(), seq = blockIdx.y, lane = lane_index();
    int count = Parts(load_fresh<int>(seq_lens + seq), pages).count;
    wait_for_previous_kernels();
    if (count == 1 || head >= q_heads) return;
    i64 first = (static_cast<i64>(seq) * q_heads + head) * TOKEN_PARTS;
    float2 own = lane < count ? load_fresh<float2>(weights + (first + lane) * 2) : float2{-CUDART_INF_F, 0.0f};
    float top = own.x, sum[EACH] = {};
#pragma unroll
    for (int lanes = 1; lanes < WARP; lanes *= 2) top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, lanes));
    float factor = exp2f(own.x - (top == -CUDART_INF_F ? 0.0f : top)), total = warp_sum(own.y * factor);
    const float* from = sums + first * HEAD_DIM + lane * EACH;
    for (int begin = 0; begin < count; begin += AT_ONCE) {
        Elements part[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) part[i] = load_fresh<Elements>(from + min(begin + i, count - 1) * HEAD_DIM);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            float of = __shfl_sync(ALL_LANES, factor, begin + i);
#pragma unroll
            for (int e = 0; e < EACH; e++) sum[e] += begin + i < count ? part[i].at[e] * of : 0.0f;
        }
    }
    Rounded rounded;
#pragma unroll
    for (int e = 0; e < EACH; e++) rounded.at[e] = __float2bfloat16(total == 0.0f ? 0.0f : sum[e] / total);
    *reinterpret_cast<Rounded*>(out + (first / TOKEN_PARTS) * HEAD_DIM + lane * EACH) = rounded;
}
