// What a sequence keeps on the device from call to call, in its slot: its last token, where that is, and a ring of its
// tokens. Row r of a call is of slot row_slots[r]; -1 is a padding row, for which nothing is kept. A thread per row.
#include "kernel.cuh"

constexpr int PAGE = 16;
constexpr int FEEDBACK_THREADS = 64;

struct Slots {
    i64 *token, *position, *ring;  // [slots], [slots], [slots, ring_size]
    int ring_size;

    __device__ void keep(i64 slot, i64 next, i64 at) const {
        token[slot] = next;
        position[slot] = at;
        ring[slot * ring_size + at % ring_size] = next;
    }
};

// The given tokens, at the given positions, are the last ones of their slots.
KERNEL(FEEDBACK_THREADS, 1)
begin(i64* slot_token, i64* slot_position, i64* ring, const int* row_slots, const i64* token_ids, const i64* positions,
      int seqs, int ring_size) {
    Slots slots{slot_token, slot_position, ring, ring_size};
    for (int r = threadIdx.x; r < seqs; r += FEEDBACK_THREADS)
        if (row_slots[r] >= 0) slots.keep(row_slots[r], token_ids[r], positions[r]);
}

// The rows of a step: the last token of each row's slot, its position, its place in the cache, the keys that it sees. Past
// the table's last page the place is -1: nothing is written there.
KERNEL(FEEDBACK_THREADS, 1)
lay_rows(i64* step_token, i64* step_position, i64* step_slot, int* step_length, const int* row_slots,
         const i64* slot_token, const i64* slot_position, const int* block_table, int seqs, int pages) {
    start_next_kernel();
    wait_for_previous_kernels();
    i64 room = static_cast<i64>(pages) * PAGE;
    for (int r = threadIdx.x; r < seqs; r += FEEDBACK_THREADS) {
        int slot = load_fresh<int>(row_slots + r);
        i64 token = 0, position = 0, place = -1;
        if (slot >= 0) {
            token = load_fresh<i64>(slot_token + slot);
            position = load_fresh<i64>(slot_position + slot);
        }
        if (slot >= 0 && position < room) {
            i64 page = load_fresh<int>(block_table + static_cast<i64>(r) * pages + position / PAGE);
            if (page >= 0) place = page * PAGE + position % PAGE;
        }
        step_token[r] = token;
        step_position[r] = min(position, room - 1);
        step_slot[r] = place;
        step_length[r] = slot < 0 ? 0 : static_cast<int>(position + 1);
    }
}

// Each row's slot moves on to the token that was chosen.
KERNEL(FEEDBACK_THREADS, 1)
advance(i64* slot_token, i64* slot_position, i64* ring, const i64* next_token, const int* row_slots, int seqs,
        int ring_size) {
    start_next_kernel();
    wait_for_previous_kernels();
    Slots slots{slot_token, slot_position, ring, ring_size};
    for (int r = threadIdx.x; r < seqs; r += FEEDBACK_THREADS) {
        int slot = load_fresh<int>(row_slots + r);
        i64 token = load_fresh<i64>(next_token + r);
        if (slot >= 0) slots.keep(slot, token, load_fresh<i64>(slot_position + slot) + 1);
    }
}

// The ids of a call: those given, and for -1 the last token of the sequence's slot; 0 for -1 in a padding row. A thread per
// token.
KERNEL(FEEDBACK_THREADS, 1)
lay_tokens(i64* row_ids, const i64* token_ids, const int* starts, const int* row_slots, const i64* slot_token,
           int tokens, int seqs) {
    start_next_kernel();
    wait_for_previous_kernels();
    int t = blockIdx.x * FEEDBACK_THREADS + threadIdx.x;
    if (t >= tokens) return;
    i64 id = load_fresh<i64>(token_ids + t);
    if (id == -1) {
        int seq = 0, end = seqs;  // the first sequence that ends after the token
        while (seq < end) {
            int middle = (seq + end) / 2;
            if (load_fresh<int>(starts + middle + 1) > t) end = middle;
            else seq = middle + 1;
        }
        int slot = seq < seqs ? load_fresh<int>(row_slots + seq) : -1;
        id = slot < 0 ? 0 : load_fresh<i64>(slot_token + slot);
    }
    row_ids[t] = id;
}

// Where a sequence has a row that chooses, its slot moves on to the token that was chosen.
KERNEL(FEEDBACK_THREADS, 1)
keep_tokens(i64* slot_token, i64* slot_position, i64* ring, const i64* next_token, const i64* logits_rows,
            const i64* positions, const int* row_slots, int seqs, int ring_size) {
    start_next_kernel();
    wait_for_previous_kernels();
    Slots slots{slot_token, slot_position, ring, ring_size};
    for (int r = threadIdx.x; r < seqs; r += FEEDBACK_THREADS) {
        int slot = load_fresh<int>(row_slots + r);
        i64 row = load_fresh<i64>(logits_rows + r);
        if (slot >= 0 && row >= 0)
            slots.keep(slot, load_fresh<i64>(next_token + r), load_fresh<i64>(positions + row) + 1);
    }
}
