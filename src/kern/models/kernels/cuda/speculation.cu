// A round of speculation from one to the next: which drafts the target would have chosen, and the rows that follow; a
// thread a sequence. A sequence has `block` drafts behind the anchor, the last token that stands. Positions and slots
// beyond the table's last page: the last position there is, and slot -1.
#include "pages.cuh"

constexpr int ROUND_THREADS = 32;

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

    // The rows of a round that begins with `anchor` at `start`.
    __device__ void lay_rows(i64 s, i64 anchor, i64 start) const {
        i64 rows = block + 1, room = static_cast<i64>(pages) * PAGE;
        const int* table = block_table + s * pages;
        tokens[s * rows] = anchor;
        block_ids[s * block] = anchor;
        length[s] = static_cast<int>(start + rows);
        block_length[s] = static_cast<int>(start + block);
        position[s] = start;
        ring[s * ring_size + start % ring_size] = anchor;
        for (i64 i = 0; i < rows; i++) {
            i64 at = start + i;
            positions[s * rows + i] = at < room ? at : room - 1;
            slots[s * rows + i] = at < room ? static_cast<i64>(table[at / PAGE]) * PAGE + at % PAGE : -1;
        }
    }

    // The rows' features, of which the first `standing` may be kept.
    __device__ void lay_features(i64 s, i64 standing) const {
        i64 rows = block + 1;
        for (i64 i = 0; i < rows; i++) {
            feature_positions[s * rows + i] = positions[s * rows + i];
            feature_slots[s * rows + i] = i < standing ? slots[s * rows + i] : -1;
        }
    }
};

// The first round's rows: of each sequence the token and the position that are given.
KERNEL(ROUND_THREADS, 1)
begin_spec(i64* round_tokens, i64* round_positions, i64* round_slots, int* round_length, int* round_rows,
           i64* block_ids, int* block_length, int* block_rows, i64* feature_positions, i64* feature_slots,
           int* accepted, i64* round_count, i64* step_position, i64* token_ring, const i64* token_ids,
           const i64* first_positions, const int* block_table, int seqs, int pages, int ring_size, int block,
           int mask) {
    Rounds rounds{round_tokens, round_positions,   round_slots,   round_length, block_ids,   block_length,
                  feature_positions, feature_slots, accepted,      round_count,  step_position, token_ring,
                  block_table,  pages,             ring_size,     block};
    for (int s = threadIdx.x; s <= seqs; s += ROUND_THREADS) {
        round_rows[s] = s * (block + 1);
        block_rows[s] = s * block;
    }
    for (i64 s = threadIdx.x; s < seqs; s += ROUND_THREADS) {
        rounds.lay_rows(s, token_ids[s], first_positions[s]);
        rounds.lay_features(s, 0);
        for (i64 i = 1; i <= block; i++) round_tokens[s * (block + 1) + i] = mask;
        for (i64 i = 1; i < block; i++) block_ids[s * block + i] = mask;
        for (i64 i = 0; i < ring_size; i++) accepted[s * ring_size + i] = 0;
        round_count[s] = 0;
    }
}

// Take the drafts that the target's choices begin with, then the target's own next token as the new anchor.
KERNEL(ROUND_THREADS, 1)
accept(i64* round_tokens, i64* round_positions, i64* round_slots, int* round_length, i64* block_ids, int* block_length,
       i64* feature_positions, i64* feature_slots, int* accepted, i64* round_count, i64* step_position, i64* token_ring,
       const i64* predicted, const int* block_table, int seqs, int pages, int ring_size, int block) {
    Rounds rounds{round_tokens, round_positions,   round_slots,   round_length, block_ids,   block_length,
                  feature_positions, feature_slots, accepted,      round_count,  step_position, token_ring,
                  block_table,  pages,             ring_size,     block};
    for (i64 s = threadIdx.x; s < seqs; s += ROUND_THREADS) {
        const i64 *drafts = round_tokens + s * (block + 1) + 1, *chosen = predicted + s * (block + 1);
        i64 start = step_position[s], taken = 0;
        while (taken < block && drafts[taken] == chosen[taken]) taken++;
        for (i64 i = 0; i < taken; i++) token_ring[s * ring_size + (start + 1 + i) % ring_size] = drafts[i];
        rounds.lay_features(s, taken + 1);
        accepted[s * ring_size + round_count[s] % ring_size] = static_cast<int>(taken);
        round_count[s]++;
        rounds.lay_rows(s, chosen[taken], start + taken + 1);
    }
}
