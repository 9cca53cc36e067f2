/* What a sequence keeps on the device from call to call, in its slot: its last token, where that is, and a ring of its
 * tokens. Row r of a call is of slot row_slots[r]; -1 is a padding row, for which nothing is kept. */
#include "kernel.h"
#include "pages.h"

typedef struct {
    int64_t *token, *position, *ring; /* [slots], [slots], [slots, ring_size] */
    int64_t ring_size;
} slots;

static void keep(const slots *s, int64_t slot, int64_t token, int64_t position) {
    s->token[slot] = token;
    s->position[slot] = position;
    s->ring[slot * s->ring_size + position % s->ring_size] = token;
}

/* The given tokens, at the given positions, are the last ones of their slots. */
KERN_KERNEL(begin, "ptr,ptr,ptr,ptr,ptr,ptr,i32,i32") {
    slots s = {KERN_ARG(int64_t *, 0), KERN_ARG(int64_t *, 1), KERN_ARG(int64_t *, 2), KERN_ARG(int32_t, 7)};
    const int32_t *row_slots = KERN_ARG(const int32_t *, 3);
    const int64_t *token_ids = KERN_ARG(const int64_t *, 4), *positions = KERN_ARG(const int64_t *, 5);
    int64_t seqs = KERN_ARG(int32_t, 6);
    (void)launch;
    for (int64_t r = 0; r < seqs; r++)
        if (row_slots[r] >= 0) keep(&s, row_slots[r], token_ids[r], positions[r]);
}

/* The rows of a step: the last token of each row's slot, its position, its place in the cache, the keys that it sees.
 * Past the table's last page the place is -1: nothing is written there. */
KERN_KERNEL(lay_rows, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32") {
    int64_t *step_token = KERN_ARG(int64_t *, 0), *step_position = KERN_ARG(int64_t *, 1);
    int64_t *step_slot = KERN_ARG(int64_t *, 2);
    int32_t *step_length = KERN_ARG(int32_t *, 3);
    const int32_t *row_slots = KERN_ARG(const int32_t *, 4);
    const int64_t *slot_token = KERN_ARG(const int64_t *, 5), *slot_position = KERN_ARG(const int64_t *, 6);
    const int32_t *block_table = KERN_ARG(const int32_t *, 7);
    int64_t seqs = KERN_ARG(int32_t, 8), pages = KERN_ARG(int32_t, 9), room = pages * PAGE;
    (void)launch;
    for (int64_t r = 0; r < seqs; r++) {
        int64_t slot = row_slots[r], position = slot < 0 ? 0 : slot_position[slot];
        int64_t page = slot < 0 || position >= room ? -1 : block_table[r * pages + position / PAGE];
        step_token[r] = slot < 0 ? 0 : slot_token[slot];
        step_position[r] = least(position, room - 1);
        step_slot[r] = page < 0 ? -1 : page * PAGE + position % PAGE;
        step_length[r] = slot < 0 ? 0 : (int32_t)(position + 1);
    }
}

/* Each row's slot moves on to the token that was chosen. */
KERN_KERNEL(advance, "ptr,ptr,ptr,ptr,ptr,i32,i32") {
    slots s = {KERN_ARG(int64_t *, 0), KERN_ARG(int64_t *, 1), KERN_ARG(int64_t *, 2), KERN_ARG(int32_t, 6)};
    const int64_t *next_token = KERN_ARG(const int64_t *, 3);
    const int32_t *row_slots = KERN_ARG(const int32_t *, 4);
    int64_t seqs = KERN_ARG(int32_t, 5);
    (void)launch;
    for (int64_t r = 0; r < seqs; r++)
        if (row_slots[r] >= 0) keep(&s, row_slots[r], next_token[r], s.position[row_slots[r]] + 1);
}

/* The ids of a call: those given, and for -1 the last token of the sequence's slot; 0 for -1 in a padding row. */
KERN_KERNEL(lay_tokens, "ptr,ptr,ptr,ptr,ptr,i32,i32") {
    int64_t *row_ids = KERN_ARG(int64_t *, 0);
    const int64_t *token_ids = KERN_ARG(const int64_t *, 1), *slot_token = KERN_ARG(const int64_t *, 4);
    const int32_t *starts = KERN_ARG(const int32_t *, 2), *row_slots = KERN_ARG(const int32_t *, 3);
    int64_t tokens = KERN_ARG(int32_t, 5), seqs = KERN_ARG(int32_t, 6), seq = 0;
    (void)launch;
    for (int64_t t = 0; t < tokens; t++) {
        while (seq < seqs && t >= starts[seq + 1]) seq++;
        int64_t slot = seq < seqs ? row_slots[seq] : -1;
        row_ids[t] = token_ids[t] != -1 ? token_ids[t] : slot < 0 ? 0 : slot_token[slot];
    }
}

/* Where a sequence has a row that chooses, its slot moves on to the token that was chosen. */
KERN_KERNEL(keep_tokens, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32") {
    slots s = {KERN_ARG(int64_t *, 0), KERN_ARG(int64_t *, 1), KERN_ARG(int64_t *, 2), KERN_ARG(int32_t, 8)};
    const int64_t *next_token = KERN_ARG(const int64_t *, 3), *logits_rows = KERN_ARG(const int64_t *, 4);
    const int64_t *positions = KERN_ARG(const int64_t *, 5);
    const int32_t *row_slots = KERN_ARG(const int32_t *, 6);
    int64_t seqs = KERN_ARG(int32_t, 7);
    (void)launch;
    for (int64_t r = 0; r < seqs; r++)
        if (row_slots[r] >= 0 && logits_rows[r] >= 0)
            keep(&s, row_slots[r], next_token[r], positions[logits_rows[r]] + 1);
}
