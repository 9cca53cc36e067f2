"""Attention over the paged pool and the writes into it, against float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from kern.contracts.text import PAGE
from kernels.harness import BF16, bf16, close, poison

LAYERS, LAYER = 2, 1  # the pool has two layers; the kernels work on the second


@dataclass
class Cache:
    """A pool with shuffled pages, and the keys and values in it, by sequence."""

    pool: np.ndarray  # [pages, layer, key or value, kv_heads, PAGE, dim]
    table: np.ndarray  # [seqs, pages]
    keys: list[np.ndarray]  # [length, kv_heads, dim]
    values: list[np.ndarray]

    def arguments(self, q_heads: int, row_stride: int, rows: slice = slice(None)) -> dict[str, np.ndarray | int]:
        """What attention takes to find the keys and values of some sequences."""
        return {
            "pool": self.pool[:, LAYER:],
            "block_table": self.table[rows].copy(),
            "pages": self.table.shape[1],
            "q_heads": q_heads,
            "kv_heads": self.pool.shape[3],
            "head_dim": self.pool.shape[5],
            "row_stride": row_stride,
            "page_stride": self.pool[0].size,
        }


def filled(rng, lengths, kv_heads, dim, pages=None) -> Cache:
    """Every slot that no sequence owns is NaN."""
    pages = pages or max(1, -(-max(lengths) // PAGE))
    pool = poison((len(lengths) * pages + 1, LAYERS, 2, kv_heads, PAGE, dim), BF16)
    table = rng.permutation(len(pool) - 1)[: len(lengths) * pages].reshape(len(lengths), pages).astype(np.int32)
    cache = Cache(pool, table, [], [])
    for seq, length in enumerate(lengths):
        keys, values = bf16(rng.normal(size=(2, length, kv_heads, dim)))
        for j in range(length):
            page, slot = table[seq, j // PAGE], j % PAGE
            pool[page, LAYER, 0, :, slot], pool[page, LAYER, 1, :, slot] = keys[j], values[j]
        cache.keys.append(keys)
        cache.values.append(values)
    return cache


def expected(q, cache, seq, seen, scale):
    """One token's output: q [q_heads, dim] over the first `seen` keys."""
    q_heads = q.shape[0]
    keys, values = (x[seq][:seen].astype(np.float64) for x in (cache.keys, cache.values))
    group = q_heads // keys.shape[1]
    out = []
    for head in range(q_heads):
        scores = keys[:, head // group] @ q[head].astype(np.float64) * scale
        weights = np.exp(scores - scores.max())
        out.append(weights @ values[:, head // group] / weights.sum())
    return np.concatenate(out)


def run_decode(same, rng, cache, lengths, q_heads, kv_heads, dim, given=None):
    seqs, row = len(lengths), (q_heads + 2 * kv_heads) * dim
    qkv, out = bf16(rng.normal(size=(seqs, row))), poison((seqs, q_heads * dim), BF16)
    lens, where = np.array(given or lengths, np.int32), cache.arguments(q_heads, row)
    same("attention_decode", o=out, q=qkv, seq_lens=lens, seqs=seqs, scale=0.3, **where)
    q = qkv[:, : q_heads * dim].reshape(seqs, q_heads, dim)
    want = [expected(q[s], cache, s, lengths[s], 0.3) for s in range(seqs)]
    close(out, np.array(want), slack=2e-5)


@pytest.mark.parametrize("dim", [64, 128, 20])
@pytest.mark.parametrize(("q_heads", "kv_heads"), [(2, 2), (9, 3), (8, 2)])
@pytest.mark.parametrize("lengths", [[1], [15], [16], [17], [64, 1, 131], [513]])
def test_decode(same, rng, dim, q_heads, kv_heads, lengths):
    run_decode(same, rng, filled(rng, lengths, kv_heads, dim), lengths, q_heads, kv_heads, dim)


def test_decode_past_the_capacity_sees_the_pages_there_are(same, rng):
    cache = filled(rng, [48, 48, 48], 1, 64, pages=3)
    run_decode(same, rng, cache, [48, 48, 48], 2, 1, 64, given=[49, 1000, 2**31 - 1])


def run_prefill(same, rng, cache, lengths, fresh, q_heads, kv_heads, dim, padding=0):
    seqs, row, starts = len(lengths), (q_heads + 2 * kv_heads) * dim, np.cumsum([0, *fresh])
    tokens = int(starts[-1]) + padding
    qkv, out = bf16(rng.normal(size=(tokens, row))), poison((tokens, q_heads * dim), BF16)
    lens, where = np.array(lengths, np.int32), cache.arguments(q_heads, row)
    of = {"seq_lens": lens, "cu_seqlens": starts.astype(np.int32), "seqs": seqs, "tokens": tokens, "scale": 0.3}
    same("attention_prefill", o=out, q=qkv, **of, **where)
    q = qkv[:, : q_heads * dim].reshape(tokens, q_heads, dim)
    want = [
        expected(q[starts[s] + i], cache, s, min(lengths[s] - fresh[s] + i + 1, len(cache.keys[s])), 0.3)
        for s in range(seqs)
        for i in range(fresh[s])
    ]
    close(out[: starts[-1]], np.array(want), slack=2e-5)
    assert np.isnan(out[starts[-1] :].astype(np.float32)).all()


@pytest.mark.parametrize("dim", [64, 128, 20])
@pytest.mark.parametrize(("q_heads", "kv_heads"), [(2, 2), (9, 3), (8, 2)])
@pytest.mark.parametrize(
    ("lengths", "fresh"),
    [([1], [1]), ([2], [2]), ([17], [17]), ([64], [64]), ([65], [65]), ([100], [13]), ([33, 5, 130], [33, 1, 77])],
)
def test_prefill(same, rng, dim, q_heads, kv_heads, lengths, fresh):
    run_prefill(same, rng, filled(rng, lengths, kv_heads, dim), lengths, fresh, q_heads, kv_heads, dim)


def test_prefill_of_a_whole_prompt_leaves_padding_alone(same, rng):
    run_prefill(same, rng, filled(rng, [511], 1, 64), [511], [511], 3, 1, 64, padding=5)


def test_prefill_past_the_capacity_sees_the_pages_there_are(same, rng):
    run_prefill(same, rng, filled(rng, [32], 1, 64, pages=2), [40], [20], 2, 1, 64)


def test_scores_far_apart_neither_overflow_nor_vanish(run, rng):
    cache = filled(rng, [200], 1, 64)
    q, out = bf16(rng.normal(size=(1, 64)) * 100), poison((1, 64), BF16)
    lens = np.array([200], np.int32)
    run("attention_decode", o=out, q=q, seq_lens=lens, seqs=1, scale=1.0, **cache.arguments(1, 64))
    close(out[0], expected(q, cache, 0, 200, 1.0), slack=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dim", [64, 20])
def test_an_unusable_query_is_seen_in_what_is_made_of_it(run, rng, dim, value):
    cache, row = filled(rng, [100], 1, dim), 4 * dim
    qkv = bf16(rng.normal(size=(100, row)))
    qkv[7, dim + 3] = value
    same = {"seq_lens": np.array([100], np.int32), "seqs": 1, "scale": 0.3, **cache.arguments(2, row)}
    out, starts = np.zeros((100, 2 * dim), BF16), np.array([0, 100], np.int32)
    run("attention_prefill", o=out, q=qkv, cu_seqlens=starts, tokens=100, **same)
    bad = np.isnan(out.astype(np.float32)).reshape(100, 2, dim)
    assert np.argwhere(bad.all(-1)).tolist() == np.argwhere(bad.any(-1)).tolist() == [[7, 1]]
    step = np.zeros((1, 2 * dim), BF16)
    run("attention_decode", o=step, q=qkv[7:8].copy(), **same)
    assert np.isnan(step.astype(np.float32)).reshape(2, dim).all(-1).tolist() == [False, True]


@pytest.mark.parametrize("tokens", [1, 2, 17, 511])
@pytest.mark.parametrize("dim", [64, 128, 20])
def test_cache_write_skips_slot_minus_one(same, rng, tokens, dim):
    kv_heads, row = 3, 8 * dim
    qkv, pool = bf16(rng.normal(size=(tokens, row))), bf16(rng.normal(size=(40, LAYERS, 2, kv_heads, PAGE, dim)))
    slots = rng.permutation(40 * PAGE)[:tokens].astype(np.int64)
    slots[::3] = -1
    want = pool.copy()
    for t in np.flatnonzero(slots >= 0):
        page, slot = divmod(slots[t], PAGE)
        want[page, LAYER, 0, :, slot] = qkv[t, 2 * dim : 5 * dim].reshape(kv_heads, dim)
        want[page, LAYER, 1, :, slot] = qkv[t, 5 * dim :].reshape(kv_heads, dim)
    k, v = qkv.reshape(-1)[2 * dim :], qkv.reshape(-1)[5 * dim :]
    where = {"pool": pool[:, LAYER:], "slots": slots, "row_stride": row, "page_stride": pool[0].size}
    same("cache_write", k=k, v=v, kv_heads=kv_heads, head_dim=dim, tokens=tokens, **where)
    assert np.array_equal(pool.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize(("q_heads", "kv_heads", "dim"), [(2, 2, 64), (9, 3, 20), (8, 2, 128)])
@pytest.mark.parametrize(
    ("lengths", "fresh"),
    [([1], [1]), ([7], [7]), ([17], [7]), ([65], [65]), ([100], [7]), ([33, 5, 330], [7, 1, 200])],
)
def test_full(same, rng, dim, q_heads, kv_heads, lengths, fresh):
    cache, starts = filled(rng, lengths, kv_heads, dim), np.cumsum([0, *fresh])
    tokens, row, seqs = int(starts[-1]), (q_heads + 2 * kv_heads) * dim, len(lengths)
    qkv, out = bf16(rng.normal(size=(tokens, row))), poison((tokens, q_heads * dim), BF16)
    lens, where = np.array(lengths, np.int32), cache.arguments(q_heads, row)
    of = {"seq_lens": lens, "cu_seqlens": starts.astype(np.int32), "seqs": seqs, "tokens": tokens, "scale": 0.3}
    same("attention_full", o=out, q=qkv, **of, **where)
    q = qkv[:, : q_heads * dim].reshape(tokens, q_heads, dim)
    want = [expected(q[i], cache, s, lengths[s], 0.3) for s in range(seqs) for i in range(starts[s], starts[s + 1])]
    close(out, np.array(want), slack=2e-5)


def test_full_past_the_capacity_sees_the_pages_there_are(run, rng):
    cache = filled(rng, [32], 1, 64, pages=2)
    q, out = bf16(rng.normal(size=(7, 64))), poison((7, 64), BF16)
    starts = np.array([0, 7], np.int32)
    where = {"seq_lens": np.array([36], np.int32), "cu_seqlens": starts, **cache.arguments(1, 64)}
    run("attention_full", o=out, q=q, seqs=1, scale=0.3, tokens=7, **where)
    close(out, np.array([expected(row[None], cache, 0, 32, 0.3) for row in q]), slack=2e-5)
