/* A toy target and its draft: what follows a token depends on all tokens before it, and both compute it exactly.
 * A state has one i64 a slot, token * (position + 1), so that a lost, stale or misplaced entry changes what follows. */
#include "kern_host.h"

enum { PAGE = 16 };

/* The token after `token`, whose own state is the last of `length` in `state`. */
static int64_t after(const int64_t *table, const int64_t *state, int64_t length, int64_t token, int64_t vocabulary) {
    int64_t sum = 0;
    if (token < 0 || table[token] < 0) return -1; /* no token can be chosen */
    for (int64_t slot = 0; slot < length; slot++) sum += state[slot];
    return (table[token] + sum) % vocabulary;
}

/* Put each row's token into the state, and say what follows it; the token itself is its feature. */
KERN_KERNEL(target, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32") {
    int64_t *predicted = KERN_ARG(int64_t *, 0);
    float *features = KERN_ARG(float *, 1);
    int64_t *state = KERN_ARG(int64_t *, 2);
    const int64_t *table = KERN_ARG(const int64_t *, 3), *ids = KERN_ARG(const int64_t *, 4);
    const int64_t *positions = KERN_ARG(const int64_t *, 5), *slots = KERN_ARG(const int64_t *, 6);
    int32_t rows = KERN_ARG(int32_t, 7), vocabulary = KERN_ARG(int32_t, 8);
    (void)launch;
    for (int32_t row = 0; row < rows; row++) {
        if (slots[row] >= 0) state[slots[row]] = ids[row] * (positions[row] + 1);
        predicted[row] = after(table, state, positions[row] + 1, ids[row], vocabulary);
        features[row] = (float)ids[row];
    }
}

/* The draft's state of each row that has a slot, from its feature. */
KERN_KERNEL(project, "ptr,ptr,ptr,ptr,i32") {
    int64_t *state = KERN_ARG(int64_t *, 0);
    const float *features = KERN_ARG(const float *, 1);
    const int64_t *positions = KERN_ARG(const int64_t *, 2), *slots = KERN_ARG(const int64_t *, 3);
    int32_t rows = KERN_ARG(int32_t, 4);
    (void)launch;
    for (int32_t row = 0; row < rows; row++)
        if (slots[row] >= 0) state[slots[row]] = (int64_t)features[row] * (positions[row] + 1);
}

/* The rows of the round that begins with the slot's token; then what the target would say after the anchor and each
 * draft, but for the positions that are spoilt. The state behind the context is scratch. */
KERN_KERNEL(draft, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32,i32") {
    int64_t *tokens = KERN_ARG(int64_t *, 0), *positions = KERN_ARG(int64_t *, 1), *slots = KERN_ARG(int64_t *, 2);
    int64_t *state = KERN_ARG(int64_t *, 3);
    const int64_t *table = KERN_ARG(const int64_t *, 4), *spoilt = KERN_ARG(const int64_t *, 5);
    int32_t slot = KERN_ARG(const int32_t *, 6)[0];
    int32_t rows = KERN_ARG(int32_t, 9), vocabulary = KERN_ARG(int32_t, 10), pages = KERN_ARG(int32_t, 11);
    int64_t start = KERN_ARG(const int64_t *, 8)[slot];
    (void)launch;
    tokens[0] = KERN_ARG(const int64_t *, 7)[slot];
    for (int32_t row = 0; row <= rows; row++) {
        positions[row] = start + row;
        slots[row] = start + row < pages * PAGE ? start + row : -1;
    }
    for (int32_t row = 0; row < rows; row++) {
        int64_t position = start + row;
        state[position] = tokens[row] * (position + 1);
        tokens[row + 1] = after(table, state, position + 1, tokens[row], vocabulary);
        if (spoilt[position + 1]) tokens[row + 1] = (tokens[row + 1] + 1) % vocabulary;
    }
    for (int32_t row = 0; row < rows; row++) state[start + row] = -1;
}

KERN_KERNEL(begin, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32") {
    int64_t *ring = KERN_ARG(int64_t *, 4);
    const int64_t *ids = KERN_ARG(const int64_t *, 5), *positions = KERN_ARG(const int64_t *, 6);
    const int32_t *pages = KERN_ARG(const int32_t *, 7), *first_rows = KERN_ARG(const int32_t *, 9);
    int64_t token = ids[first_rows[0]], position = positions[first_rows[0]];
    (void)launch;
    if (KERN_ARG(const int32_t *, 10)[0] < 0) return;
    KERN_ARG(int64_t *, 0)[0] = token;
    KERN_ARG(int64_t *, 1)[0] = position;
    KERN_ARG(int64_t *, 2)[0] = pages[position / PAGE] * PAGE + position % PAGE;
    KERN_ARG(int32_t *, 3)[0] = KERN_ARG(const int32_t *, 8)[0];
    ring[position % KERN_ARG(int32_t, 11)] = token;
}

KERN_KERNEL(advance, "ptr,ptr,ptr,ptr,ptr,ptr,i32,i32") {
    int64_t *ring = KERN_ARG(int64_t *, 4);
    int64_t token = KERN_ARG(const int64_t *, 5)[0], position = KERN_ARG(int64_t *, 1)[0] + 1;
    int32_t pages = KERN_ARG(int32_t, 6);
    (void)launch;
    KERN_ARG(int64_t *, 0)[0] = token;
    KERN_ARG(int64_t *, 1)[0] = position;
    KERN_ARG(int64_t *, 2)[0] = position < pages * PAGE ? position : -1;
    KERN_ARG(int32_t *, 3)[0] = (int32_t)position + 1;
    ring[position % KERN_ARG(int32_t, 7)] = token;
}

KERN_KERNEL(begin_spec, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32") {
    int32_t slot = KERN_ARG(const int32_t *, 4)[0];
    int64_t token = KERN_ARG(const int64_t *, 5)[0], position = KERN_ARG(const int64_t *, 6)[0];
    (void)launch;
    KERN_ARG(int64_t *, 0)[slot] = token;
    KERN_ARG(int64_t *, 1)[slot] = position;
    KERN_ARG(int64_t *, 2)[position % KERN_ARG(int32_t, 7)] = token;
    KERN_ARG(int64_t *, 3)[slot] = 0;
}

/* `mistake` is added to what was accepted, for a kernel that is wrong. */
KERN_KERNEL(accept, "ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,ptr,i32,i32,i32,i32") {
    int64_t *ring = KERN_ARG(int64_t *, 2), *rounds = KERN_ARG(int64_t *, 3), *slots = KERN_ARG(int64_t *, 4);
    int32_t *accepted = KERN_ARG(int32_t *, 5), slot = KERN_ARG(const int32_t *, 8)[0];
    const int64_t *tokens = KERN_ARG(const int64_t *, 6), *predicted = KERN_ARG(const int64_t *, 7);
    int32_t rows = KERN_ARG(int32_t, 9), ring_size = KERN_ARG(int32_t, 10);
    int32_t mistake = KERN_ARG(int32_t, 11), counts = KERN_ARG(int32_t, 12);
    int64_t *start = KERN_ARG(int64_t *, 1) + slot, count = 0;
    (void)launch;
    while (count + 1 < rows && predicted[count] >= 0 && tokens[count + 1] == predicted[count]) count++;
    if (count + mistake >= 0 && count + mistake < rows) count += mistake;
    for (int32_t row = 0; row < rows; row++) {
        if (row > count) slots[row] = -1;
        if (row < count) ring[(*start + row + 1) % ring_size] = tokens[row + 1];
    }
    ring[(*start + count + 1) % ring_size] = predicted[count];
    accepted[rounds[slot]++ % counts] = (int32_t)count;
    KERN_ARG(int64_t *, 0)[slot] = predicted[count];
    *start += count + 1;
}
