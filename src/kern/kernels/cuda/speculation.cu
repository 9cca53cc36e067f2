// A round of speculation from one to the next: which drafts the target would have chosen, and the rows that follow; a
// warp for all sequences, a lane per row. A sequence has `block` drafts after the anchor, the last accepted token.
// Positions and slots beyond the table's last page: the last position there is, and slot -1.
#include "pages.cuh"

struct Rounds {
    i64 *tokens, *positions, *slots;  // [seqs, block + 1]: the rows that the target verifies
    int* length;                      // [seqs]: keys that its last row sees
    i64* block_ids;                   // [seqs, block]: the anchor, and masks
    int* block_length;
    i64 *feature_positions, *feature_slots;  // [seqs, block + 1]: of the rows verified last; slot -1: rejected
    int* accepted;                           // [seqs, ring]: drafts taken in round r at r % ring
    i64 *count, *position, *ring;            // [seqs]: rounds; the anchor's position; [seqs, ring]: tokens
    const int* block_table;
    int pages, ring_size, block;

    // Of row `row`, the lane's own, and of all.
    __device__ i64 index(i64 s, int row) const { return s * (block + 1) + row; }
    __device__ bool has(int row) const { return row <= block; }

    // The token at a position.
    __device__ i64& token_at(i64 s, i64 at) const { return ring[s * ring_size + static_cast<u32>(at) % ring_size]; }

    // This lane's row of a round that begins with `anchor` at `start`.
    __device__ void lay_row(i64 s, int row, i64 anchor, i64 start) const {
        if (!has(row)) return;
        i64 room = static_cast<i64>(pages) * PAGE, at = start + row, inside = min(at, room - 1);
        i64 page = load_fresh<int>(block_table + s * pages + inside / PAGE);
        positions[index(s, row)] = inside;
        slots[index(s, row)] = at < room ? page * PAGE + at % PAGE : -1;
        if (row > 0) return;
        tokens[index(s, 0)] = anchor;
        block_ids[s * block] = anchor;
        length[s] = static_cast<int>(start) + block + 1;
        block_length[s] = static_cast<int>(start) + block;
        position[s] = start;
    }

    // The position of this lane's row of the round before, and its slot, or -1.
    __device__ void lay_feature(i64 s, int row, i64 at, i64 slot) const {
        if (!has(row)) return;
        feature_positions[index(s, row)] = at;
        feature_slots[index(s, row)] = slot;
    }
};

// The first round's rows: of each sequence the token and the position that are given.
KERNEL(WARP, 1)
begin_spec(i64* round_tokens, i64* round_positions, i64* round_slots, int* round_length, int* round_starts,
           i64* block_ids, int* block_length, int* block_starts, i64* feature_positions, i64* feature_slots,
           int* accepted, i64* round_count, i64* step_position, i64* token_ring, const i64* token_ids,
           const i64* first_positions, const int* block_table, int seqs, int pages, int ring_size, int block,
           int mask) {
    Rounds rounds{round_tokens, round_positions,   round_slots,   round_length, block_ids,   block_length,
                  feature_positions, feature_slots, accepted,      round_count,  step_position, token_ring,
                  block_table,  pages,             ring_size,     block};
    int row = lane_index();
    if (block >= WARP) __trap();
    for (int s = row; s <= seqs; s += WARP) {
        round_starts[s] = s * (block + 1);
        block_starts[s] = s * block;
    }
    for (i64 s = 0; s < seqs; s++) {
        i64 start = first_positions[s], anchor = token_ids[s];
        rounds.lay_row(s, row, anchor, start);
        rounds.lay_feature(s, row, min(start + row, static_cast<i64>(pages) * PAGE - 1), -1);
        if (row > 0 && row <= block) round_tokens[rounds.index(s, row)] = mask;
        if (row > 0 && row < block) block_ids[s * block + row] = mask;
        for (int i = row; i < ring_size; i += WARP) accepted[s * ring_size + i] = 0;
        if (row > 0) continue;
        rounds.token_at(s, start) = anchor;
        round_count[s] = 0;
    }
}

// Take the drafts that the target's choices begin with, then the target's own next token as the new anchor. Everything
// is loaded at once, but for the pages.
KERNEL(WARP, 1)
accept(i64* round_tokens, i64* round_positions, i64* round_slots, int* round_length, i64* block_ids, int* block_length,
       i64* feature_positions, i64* feature_slots, int* accepted, i64* round_count, i64* step_position, i64* token_ring,
       const i64* predicted, const int* block_table, int seqs, int pages, int ring_size, int block) {
    start_next_kernel();
    Rounds rounds{round_tokens, round_positions,   round_slots,   round_length, block_ids,   block_length,
                  feature_positions, feature_slots, accepted,      round_count,  step_position, token_ring,
                  block_table,  pages,             ring_size,     block};
    int row = lane_index();
    if (block >= WARP) __trap();
    wait_for_previous_kernels();
    for (i64 s = 0; s < seqs; s++) {
        i64 start = load_fresh<i64>(step_position + s), count = load_fresh<i64>(round_count + s);
        i64 at = rounds.index(s, min(row, block));
        i64 token = load_fresh<i64>(round_tokens + at), chosen = load_fresh<i64>(predicted + at);
        i64 position = load_fresh<i64>(round_positions + at), slot = load_fresh<i64>(round_slots + at);
        // A row's choice is the token of the row after it, where that draft is right. A choice of -1, no token, never is.
        i64 next = __shfl_down_sync(ALL_LANES, token, 1);
        bool right = row < block && next == chosen && chosen >= 0;
        int taken = __ffs(~__ballot_sync(ALL_LANES, right)) - 1;
        rounds.lay_row(s, row, __shfl_sync(ALL_LANES, chosen, taken), start + taken + 1);
        rounds.lay_feature(s, row, position, row <= taken ? slot : -1);
        if (row <= taken) rounds.token_at(s, start + 1 + row) = chosen;
        if (row > 0) continue;
        accepted[s * ring_size + count % ring_size] = taken;
        round_count[s] = count + 1;
    }
}
