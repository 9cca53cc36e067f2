/* A round of speculation: its rows, and which drafts the target would have chosen.
 *
 * A sequence has `block` drafts after the anchor, its last token. What lives from round to round is found by its slot,
 * row_slots[s]; a row without one, -1, is padding, and changes nothing there. Its tokens enter the ring as steps of one
 * token do. */
#include "kernel.h"
#include "pages.h"

/* The inputs become the anchors of the first round. */
KERN_KERNEL(begin_spec, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32") {
    int64_t *slot_token = KERN_ARG(int64_t *, 0), *slot_position = KERN_ARG(int64_t *, 1);
    int64_t *ring = KERN_ARG(int64_t *, 2), *count = KERN_ARG(int64_t *, 4);
    int32_t *accepted = KERN_ARG(int32_t *, 3);
    const int32_t *row_slots = KERN_ARG(const int32_t *, 5);
    const int64_t *token_ids = KERN_ARG(const int64_t *, 6), *positions = KERN_ARG(const int64_t *, 7);
    int64_t seqs = KERN_ARG(int32_t, 8), ring_size = KERN_ARG(int32_t, 9);
    (void)launch;
    for (int64_t s = 0; s < seqs; s++) {
        int64_t slot = row_slots[s];
        if (slot < 0) continue;
        slot_token[slot] = token_ids[s];
        slot_position[slot] = positions[s];
        ring[slot * ring_size + positions[s] % ring_size] = token_ids[s];
        for (int64_t i = 0; i < ring_size; i++) accepted[slot * ring_size + i] = 0;
        count[slot] = 0;
    }
}

/* The rows of each sequence's round. Beyond the table's last page: the last position there is, and slot -1. */
KERN_KERNEL(lay_round, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32,i32,i32") {
    int64_t *round_tokens = KERN_ARG(int64_t *, 0), *round_positions = KERN_ARG(int64_t *, 1);
    int64_t *round_slots = KERN_ARG(int64_t *, 2);
    int32_t *round_length = KERN_ARG(int32_t *, 3), *round_starts = KERN_ARG(int32_t *, 4);
    int64_t *block_ids = KERN_ARG(int64_t *, 5), *block_positions = KERN_ARG(int64_t *, 6);
    int64_t *block_slots = KERN_ARG(int64_t *, 7);
    int32_t *block_length = KERN_ARG(int32_t *, 8), *block_starts = KERN_ARG(int32_t *, 9);
    const int32_t *row_slots = KERN_ARG(const int32_t *, 10), *table = KERN_ARG(const int32_t *, 13);
    const int64_t *slot_token = KERN_ARG(const int64_t *, 11), *slot_position = KERN_ARG(const int64_t *, 12);
    int64_t seqs = KERN_ARG(int32_t, 14), pages = KERN_ARG(int32_t, 15), block = KERN_ARG(int32_t, 16);
    int64_t mask = KERN_ARG(int32_t, 17), rows = block + 1, room = pages * PAGE;
    (void)launch;
    for (int64_t s = 0; s < seqs; s++, table += pages) {
        int64_t slot = row_slots[s], start = slot < 0 ? 0 : slot_position[slot];
        round_length[s] = slot < 0 ? 0 : (int32_t)(start + rows);
        block_length[s] = slot < 0 ? 0 : (int32_t)(start + block);
        for (int64_t i = 0; i < rows; i++) {
            int64_t at = slot < 0 ? 0 : start + i, to = s * rows + i, in_block = s * block + i;
            round_tokens[to] = slot < 0 || i > 0 ? mask : slot_token[slot];
            round_positions[to] = least(at, room - 1);
            round_slots[to] = slot >= 0 && at < room ? (int64_t)table[at / PAGE] * PAGE + at % PAGE : -1;
            if (i == block) break;
            block_ids[in_block] = round_tokens[to];
            block_positions[in_block] = round_positions[to];
            block_slots[in_block] = round_slots[to];
        }
    }
    for (int64_t s = 0; s <= seqs; s++) {
        round_starts[s] = (int32_t)(s * rows);
        block_starts[s] = (int32_t)(s * block);
    }
}

/* Take the drafts that the target's choices begin with, then the target's own next token as the new anchor. A choice
 * of -1, no token, is the anchor even where the draft had none either. */
KERN_KERNEL(accept, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32,i32") {
    int64_t *slot_token = KERN_ARG(int64_t *, 0), *slot_position = KERN_ARG(int64_t *, 1);
    int64_t *ring = KERN_ARG(int64_t *, 2), *count = KERN_ARG(int64_t *, 4), *round_slots = KERN_ARG(int64_t *, 5);
    int32_t *accepted = KERN_ARG(int32_t *, 3);
    const int64_t *round_tokens = KERN_ARG(const int64_t *, 6), *predicted = KERN_ARG(const int64_t *, 7);
    const int32_t *row_slots = KERN_ARG(const int32_t *, 8);
    int64_t seqs = KERN_ARG(int32_t, 9), ring_size = KERN_ARG(int32_t, 10), block = KERN_ARG(int32_t, 11);
    int64_t rows = block + 1;
    (void)launch;
    for (int64_t s = 0; s < seqs; s++) {
        const int64_t *drafts = round_tokens + s * rows + 1, *chosen = predicted + s * rows;
        int64_t slot = row_slots[s], taken = 0;
        if (slot < 0) continue;
        while (taken < block && drafts[taken] == chosen[taken] && chosen[taken] >= 0) taken++;
        for (int64_t i = 0; i <= taken; i++)
            ring[slot * ring_size + (slot_position[slot] + 1 + i) % ring_size] = chosen[i];
        for (int64_t i = taken + 1; i < rows; i++) round_slots[s * rows + i] = -1;
        accepted[slot * ring_size + count[slot] % ring_size] = (int32_t)taken;
        count[slot]++;
        slot_token[slot] = chosen[taken];
        slot_position[slot] += taken + 1;
    }
}
