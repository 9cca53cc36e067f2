// A round of speculation: its rows, and which drafts the target would have chosen; a warp per sequence, a lane per row.
// A sequence has `block` drafts after the anchor, its last token. What lives from round to round is found by its slot,
// row_slots[s]; a row without one, -1, is padding, and changes nothing there.
#include "pages.cuh"

// The first round: the token and the position that are given.
KERNEL(WARP, 1)
begin_spec(i64* slot_token, i64* slot_position, i64* token_ring, int* accepted, i64* round_count, const int* row_slots,
           const i64* token_ids, const i64* first_positions, int, int ring_size) {
    int s = blockIdx.x, slot = row_slots[s];
    if (slot < 0) return;
    for (int i = lane_index(); i < ring_size; i += WARP) accepted[static_cast<i64>(slot) * ring_size + i] = 0;
    if (lane_index() > 0) return;
    i64 start = first_positions[s], anchor = token_ids[s];
    slot_token[slot] = anchor;
    slot_position[slot] = start;
    token_ring[static_cast<i64>(slot) * ring_size + start % ring_size] = anchor;
    round_count[slot] = 0;
}

// The rows of a sequence's round. Beyond the table's last page: the last position there is, and slot -1.
KERNEL(WARP, 1)
lay_round(i64* round_tokens, i64* round_positions, i64* round_slots, int* round_length, int* round_starts,
          i64* block_ids, i64* block_positions, i64* block_slots, int* block_length, int* block_starts,
          const int* row_slots, const i64* slot_token, const i64* slot_position, const int* block_table, int seqs,
          int pages, int block, int mask) {
    start_next_kernel();
    int row = lane_index(), s = blockIdx.x;
    if (block >= WARP) __trap();
    wait_for_previous_kernels();
    int slot = load_fresh<int>(row_slots + s);
    i64 start = slot < 0 ? 0 : load_fresh<i64>(slot_position + slot);
    i64 anchor = slot < 0 ? mask : load_fresh<i64>(slot_token + slot);
    i64 room = static_cast<i64>(pages) * PAGE, at = slot < 0 ? 0 : start + row, inside = min(at, room - 1);
    i64 page = load_fresh<int>(block_table + static_cast<i64>(s) * pages + inside / PAGE);
    i64 to = slot >= 0 && at < room ? page * PAGE + at % PAGE : -1, token = row > 0 ? mask : anchor;
    if (row <= block) {
        i64 index = static_cast<i64>(s) * (block + 1) + row;
        round_tokens[index] = token;
        round_positions[index] = inside;
        round_slots[index] = to;
    }
    if (row < block) {
        i64 index = static_cast<i64>(s) * block + row;
        block_ids[index] = token;
        block_positions[index] = inside;
        block_slots[index] = to;
    }
    if (row > 0) return;
    round_length[s] = slot < 0 ? 0 : static_cast<int>(start) + block + 1;
    block_length[s] = slot < 0 ? 0 : static_cast<int>(start) + block;
    for (int i = s; i <= s + (s == seqs - 1); i++) {  // the last has the end too
        round_starts[i] = i * (block + 1);
        block_starts[i] = i * block;
    }
}

// Take the drafts that the target's choices begin with, then the target's own next token as the new anchor. What does
// not depend on the slot is loaded at once.
KERNEL(WARP, 1)
accept(i64* slot_token, i64* slot_position, i64* token_ring, int* accepted, i64* round_count, i64* round_slots,
       const i64* round_tokens, const i64* predicted, const int* row_slots, int, int ring_size, int block) {
    start_next_kernel();
    int row = lane_index(), s = blockIdx.x;
    if (block >= WARP) __trap();
    wait_for_previous_kernels();
    i64 at = static_cast<i64>(s) * (block + 1) + min(row, block);
    int slot = load_fresh<int>(row_slots + s);
    i64 token = load_fresh<i64>(round_tokens + at), chosen = load_fresh<i64>(predicted + at);
    if (slot < 0) return;
    i64 start = load_fresh<i64>(slot_position + slot), count = load_fresh<i64>(round_count + slot);
    // A row's choice is the token of the row after it, where that draft is right. A choice of -1, no token, never is.
    i64 next = __shfl_down_sync(ALL_LANES, token, 1);
    bool right = row < block && next == chosen && chosen >= 0;
    int taken = __ffs(~__ballot_sync(ALL_LANES, right)) - 1;
    if (row > block) return;
    if (row <= taken) {
        i64 to = start + 1 + row;
        token_ring[static_cast<i64>(slot) * ring_size + static_cast<u32>(to) % ring_size] = chosen;
    } else {
        round_slots[at] = -1;
    }
    if (row == taken) slot_token[slot] = chosen;
    if (row > 0) return;
    accepted[static_cast<i64>(slot) * ring_size + count % ring_size] = taken;
    round_count[slot] = count + 1;
    slot_position[slot] = start + taken + 1;
}
