// Keeping a sequence's token, position, slot and length on the device from one step to the next; a thread per sequence.
#include "kernel.cuh"

constexpr int PAGE = 16;
constexpr int FEEDBACK_THREADS = 32;

// Take the first `seqs` of each input as the step to run, and put the tokens into the ring.
KERNEL(FEEDBACK_THREADS, 1)
begin(i64* step_token, i64* step_position, i64* step_slot, int* step_length, i64* ring, const i64* token_ids,
      const i64* positions, const i64* slot_mapping, const int* seq_lens, int seqs, int ring_size) {
    for (int s = threadIdx.x; s < seqs; s += FEEDBACK_THREADS) {
        step_token[s] = token_ids[s];
        step_position[s] = positions[s];
        step_slot[s] = slot_mapping[s];
        step_length[s] = seq_lens[s];
        ring[static_cast<i64>(s) * ring_size + positions[s] % ring_size] = token_ids[s];
    }
}

// Move each sequence to its next token. Past the table's last page the slot is -1: nothing is written there.
KERNEL(FEEDBACK_THREADS, 1)
advance(i64* step_token, i64* step_position, i64* step_slot, int* step_length, i64* ring, const i64* next_token,
        const int* block_table, int seqs, int pages, int ring_size) {
    start_next_kernel();
    wait_for_previous_kernels();
    for (int s = threadIdx.x; s < seqs; s += FEEDBACK_THREADS) {
        i64 position = load_fresh<i64>(step_position + s) + 1, token = load_fresh<i64>(next_token + s), slot = -1;
        if (position < static_cast<i64>(pages) * PAGE) {
            int page = load_fresh<int>(block_table + static_cast<i64>(s) * pages + position / PAGE);
            slot = static_cast<i64>(page) * PAGE + position % PAGE;
        }
        step_token[s] = token;
        step_position[s] = position;
        step_slot[s] = slot;
        step_length[s] = static_cast<int>(position + 1);
        ring[static_cast<i64>(s) * ring_size + position % ring_size] = token;
    }
}
