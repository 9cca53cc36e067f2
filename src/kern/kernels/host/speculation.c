/* A round of speculation from one to the next: which drafts the target would have chosen, and the rows that follow.
 *
 * A sequence has `block` drafts after the anchor, the last accepted token. Positions and slots beyond the table's
 * last page: the last position there is, and slot -1. Its tokens enter the ring as steps of one token do. */
#include "kernel.h"
#include "pages.h"

typedef struct {
    int64_t *tokens, *positions, *slots; /* [seqs, block + 1]: the rows that the target verifies */
    int32_t *length;                     /* [seqs]: keys that its last row sees */
    int64_t *block_ids;                  /* [seqs, block]: the anchor, and masks */
    int32_t *block_length;
    int64_t *feature_positions, *feature_slots; /* [seqs, block + 1]: of the rows verified last; slot -1: rejected */
    int32_t *accepted;                          /* [seqs, ring]: drafts taken in round r at r % ring */
    int64_t *count, *position, *ring;           /* [seqs]: rounds; the anchor's position; [seqs, ring]: tokens */
    const int32_t *block_table;
    int64_t seqs, pages, ring_size, block;
} rounds;

/* The rows of a round that begins with `anchor` at `start`. */
static void lay_rows(const rounds *r, int64_t s, int64_t anchor, int64_t start) {
    int64_t rows = r->block + 1, room = r->pages * PAGE;
    const int32_t *table = r->block_table + s * r->pages;
    r->tokens[s * rows] = anchor;
    r->block_ids[s * r->block] = anchor;
    r->length[s] = (int32_t)(start + rows);
    r->block_length[s] = (int32_t)(start + r->block);
    r->position[s] = start;
    r->ring[s * r->ring_size + start % r->ring_size] = anchor;
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = start + i;
        r->positions[s * rows + i] = least(at, room - 1);
        r->slots[s * rows + i] = at < room ? (int64_t)table[at / PAGE] * PAGE + at % PAGE : -1;
    }
}

/* The first round's rows: of each sequence the token and the position that are given. */
KERN_KERNEL(begin_spec, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32,i32,i32,i32") {
    rounds r = {KERN_ARG(int64_t *, 0),  KERN_ARG(int64_t *, 1),  KERN_ARG(int64_t *, 2),  KERN_ARG(int32_t *, 3),
                KERN_ARG(int64_t *, 5),  KERN_ARG(int32_t *, 6),  KERN_ARG(int64_t *, 8),  KERN_ARG(int64_t *, 9),
                KERN_ARG(int32_t *, 10), KERN_ARG(int64_t *, 11), KERN_ARG(int64_t *, 12), KERN_ARG(int64_t *, 13),
                KERN_ARG(const int32_t *, 16), KERN_ARG(int32_t, 17), KERN_ARG(int32_t, 18), KERN_ARG(int32_t, 19),
                KERN_ARG(int32_t, 20)};
    int32_t *round_starts = KERN_ARG(int32_t *, 4), *block_starts = KERN_ARG(int32_t *, 7);
    const int64_t *token_ids = KERN_ARG(const int64_t *, 14), *positions = KERN_ARG(const int64_t *, 15);
    int64_t rows = r.block + 1, mask = KERN_ARG(int32_t, 21);
    (void)launch;
    for (int64_t s = 0; s <= r.seqs; s++) {
        round_starts[s] = (int32_t)(s * rows);
        block_starts[s] = (int32_t)(s * r.block);
    }
    for (int64_t s = 0; s < r.seqs; s++) {
        lay_rows(&r, s, token_ids[s], positions[s]);
        for (int64_t i = 1; i < rows; i++) r.tokens[s * rows + i] = mask;
        for (int64_t i = 1; i < r.block; i++) r.block_ids[s * r.block + i] = mask;
        for (int64_t i = 0; i < rows; i++) {
            r.feature_positions[s * rows + i] = r.positions[s * rows + i];
            r.feature_slots[s * rows + i] = -1;
        }
        for (int64_t i = 0; i < r.ring_size; i++) r.accepted[s * r.ring_size + i] = 0;
        r.count[s] = 0;
    }
}

/* Take the drafts that the target's choices begin with, then the target's own next token as the new anchor. A choice
 * of -1, no token, is the anchor even where the draft had none either. */
KERN_KERNEL(accept, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32,i32,i32") {
    rounds r = {KERN_ARG(int64_t *, 0),  KERN_ARG(int64_t *, 1), KERN_ARG(int64_t *, 2), KERN_ARG(int32_t *, 3),
                KERN_ARG(int64_t *, 4),  KERN_ARG(int32_t *, 5), KERN_ARG(int64_t *, 6), KERN_ARG(int64_t *, 7),
                KERN_ARG(int32_t *, 8),  KERN_ARG(int64_t *, 9), KERN_ARG(int64_t *, 10), KERN_ARG(int64_t *, 11),
                KERN_ARG(const int32_t *, 13), KERN_ARG(int32_t, 14), KERN_ARG(int32_t, 15), KERN_ARG(int32_t, 16),
                KERN_ARG(int32_t, 17)};
    const int64_t *predicted = KERN_ARG(const int64_t *, 12);
    int64_t rows = r.block + 1;
    (void)launch;
    for (int64_t s = 0; s < r.seqs; s++) {
        const int64_t *drafts = r.tokens + s * rows + 1, *chosen = predicted + s * rows;
        int64_t start = r.position[s], taken = 0;
        while (taken < r.block && drafts[taken] == chosen[taken] && chosen[taken] >= 0) taken++;
        for (int64_t i = 0; i < taken; i++)
            r.ring[s * r.ring_size + (start + 1 + i) % r.ring_size] = drafts[i];
        for (int64_t i = 0; i < rows; i++) {
            r.feature_positions[s * rows + i] = r.positions[s * rows + i];
            r.feature_slots[s * rows + i] = i <= taken ? r.slots[s * rows + i] : -1;
        }
        r.accepted[s * r.ring_size + r.count[s] % r.ring_size] = (int32_t)taken;
        r.count[s]++;
        lay_rows(&r, s, chosen[taken], start + taken + 1);
    }
}
