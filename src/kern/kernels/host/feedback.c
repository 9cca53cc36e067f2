/* Keeping a sequence's token, position, slot and length on the device from one step to the next. */
#include "kernel.h"
#include "pages.h"

/* Take the first `seqs` of each input as the step to run, and put the tokens into the ring. */
KERN_KERNEL(begin, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32") {
    int64_t *step_token = KERN_ARG(int64_t *, 0), *step_position = KERN_ARG(int64_t *, 1);
    int64_t *step_slot = KERN_ARG(int64_t *, 2);
    int32_t *step_length = KERN_ARG(int32_t *, 3);
    int64_t *ring = KERN_ARG(int64_t *, 4);
    const int64_t *token_ids = KERN_ARG(const int64_t *, 5), *positions = KERN_ARG(const int64_t *, 6);
    const int64_t *slot_mapping = KERN_ARG(const int64_t *, 7);
    const int32_t *seq_lens = KERN_ARG(const int32_t *, 8);
    int64_t seqs = KERN_ARG(int32_t, 9), ring_size = KERN_ARG(int32_t, 10);
    (void)launch;
    for (int64_t s = 0; s < seqs; s++) {
        step_token[s] = token_ids[s];
        step_position[s] = positions[s];
        step_slot[s] = slot_mapping[s];
        step_length[s] = seq_lens[s];
        ring[s * ring_size + positions[s] % ring_size] = token_ids[s];
    }
}

/* Move each sequence to its next token. Past the table's last page the slot is -1: nothing is written there. */
KERN_KERNEL(advance, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32,i32") {
    int64_t *step_token = KERN_ARG(int64_t *, 0), *step_position = KERN_ARG(int64_t *, 1);
    int64_t *step_slot = KERN_ARG(int64_t *, 2);
    int32_t *step_length = KERN_ARG(int32_t *, 3);
    int64_t *ring = KERN_ARG(int64_t *, 4);
    const int64_t *next_token = KERN_ARG(const int64_t *, 5);
    const int32_t *block_table = KERN_ARG(const int32_t *, 6);
    int64_t seqs = KERN_ARG(int32_t, 7), pages = KERN_ARG(int32_t, 8), ring_size = KERN_ARG(int32_t, 9);
    (void)launch;
    for (int64_t s = 0; s < seqs; s++) {
        int64_t position = step_position[s] + 1;
        step_token[s] = next_token[s];
        step_position[s] = position;
        step_length[s] = (int32_t)(position + 1);
        step_slot[s] = position < pages * PAGE
                           ? (int64_t)block_table[s * pages + position / PAGE] * PAGE + position % PAGE
                           : -1;
        ring[s * ring_size + position % ring_size] = next_token[s];
    }
}
