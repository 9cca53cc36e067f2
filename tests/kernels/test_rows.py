"""Kernels that treat each row by itself, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.choices import one_unusable
from kernels.harness import BF16, bf16, close, poison

F32, F64, I64 = np.float32, np.float64, np.int64
TOKENS = (1, 2, 17, 64, 65, 511)


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("hidden", [64, 203])
def test_embedding(same, rng, tokens, hidden):
    table, ids = bf16(rng.normal(size=(50, hidden))), rng.integers(0, 50, tokens)
    x = poison((tokens, hidden), F32)
    same("embedding", x=x, ids=ids, table=table, hidden=hidden, tokens=tokens)
    assert np.array_equal(x, table[ids].astype(F32))


def normed(x, weight, eps):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight.astype(F64)


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("hidden", [64, 203])
def test_rms_norm(same, rng, tokens, hidden):
    x, weight = rng.normal(size=(tokens, hidden)).astype(F32), bf16(rng.normal(size=hidden))
    y = poison((tokens, hidden), BF16)
    same("rms_norm", y=y, x=x, weight=weight, hidden=hidden, eps=1e-2, tokens=tokens)
    close(y, normed(x.astype(F64), weight, 1e-2))


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("hidden", [64, 203])
def test_add_rms_norm(same, rng, tokens, hidden):
    before, delta = rng.normal(size=(tokens, hidden)).astype(F32), bf16(rng.normal(size=(tokens, hidden)))
    weight, x, y = bf16(rng.normal(size=hidden)), before.copy(), poison((tokens, hidden), BF16)
    same("add_rms_norm", y=y, x=x, delta=delta, weight=weight, hidden=hidden, eps=1e-5, tokens=tokens)
    assert np.array_equal(x, before + delta.astype(F32))
    close(y, normed(x.astype(F64), weight, 1e-5))


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("dim", [64, 128, 22])
@pytest.mark.parametrize("entry", ["q_head_norm", "k_head_norm"])
def test_head_norm(same, rng, entry, tokens, dim):
    counts = {"q_heads": 4, "kv_heads": 2}
    heads = counts["q_heads"] if entry == "q_head_norm" else counts["kv_heads"]
    rows, weight = bf16(rng.normal(size=(tokens, 9, dim))), bf16(rng.normal(size=dim))
    before = rows.astype(F64)
    sizes = {"head_dim": dim, "row_stride": 9 * dim, "tokens": tokens, **counts}
    same(entry, heads=rows[:, 1:], weight=weight, eps=1e-6, **sizes)
    close(rows[:, 1 : 1 + heads], normed(before[:, 1 : 1 + heads], weight, 1e-6))
    untouched = np.r_[0, 1 + heads : 9]
    assert np.array_equal(rows[:, untouched].astype(F64), before[:, untouched])


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("dim", [64, 128, 22])
def test_rope_rotates_halves(same, rng, tokens, dim):
    q_heads, kv_heads, positions = 3, 1, rng.integers(0, 600, tokens)
    angles = np.arange(600)[:, None] / 1e4 ** (np.arange(dim // 2) / (dim // 2))
    table = np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(F32)
    rows = bf16(rng.normal(size=(tokens, 6, dim)))
    before = rows.astype(F64)
    sizes = {"head_dim": dim, "row_stride": 6 * dim, "tokens": tokens, "q_heads": q_heads, "kv_heads": kv_heads}
    same("rope", qkv=rows, positions=positions, cos_sin=table, **sizes)
    pairs = before[:, :4, : dim // 2] + 1j * before[:, :4, dim // 2 :]
    turned = pairs * np.exp(1j * angles[positions])[:, None]
    close(rows[:, :4], np.concatenate([turned.real, turned.imag], -1))
    assert np.array_equal(rows[:, 4:].astype(F64), before[:, 4:])


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("width", [64, 203])
def test_silu_mul(same, rng, tokens, width):
    gate_up = bf16(rng.normal(size=(tokens, 2 * width)) * 8)
    y = poison((tokens, width), BF16)
    same("silu_mul", y=y, gate_up=gate_up, ffn=width, tokens=tokens)
    gate, up = np.split(gate_up.astype(F64), 2, 1)
    close(y, gate / (1 + np.exp(-gate)) * up)


def test_silu_mul_of_extremes(run):
    gate = np.array([-np.inf, -3e38, -200, -88, -87, 0, 88, 89, 200, 3e38, np.inf, np.nan], F32)
    y = poison((1, gate.size), BF16)
    run("silu_mul", y=y, gate_up=bf16(np.concatenate([gate, np.ones_like(gate)])), ffn=gate.size, tokens=1)
    with np.errstate(over="ignore", invalid="ignore"):
        want = gate.astype(BF16).astype(F64) / (1 + np.exp(-gate.astype(F64)))
    want[0] = np.nan  # -inf times zero
    got = y[0].astype(F64)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(want)
    close(got[finite], want[finite], slack=1e-30)


@pytest.mark.parametrize("tokens", TOKENS[:5])
@pytest.mark.parametrize("vocabulary", [500, 49_152])
def test_token_nll(same, rng, tokens, vocabulary):
    logits = (rng.normal(size=(tokens, vocabulary)) * 6).astype(F32)
    targets, nll = rng.integers(0, vocabulary, tokens), poison((tokens,), F32)
    same("token_nll", nll=nll, logits=logits, targets=targets, vocabulary=vocabulary, seqs=tokens)
    wide = logits.astype(F64)
    top = wide.max(1)
    want = np.log(np.exp(wide - top[:, None]).sum(1)) + top - wide[np.arange(tokens), targets]
    close(nll, want, bits=20, slack=4e-6)


def test_token_nll_of_a_target_outside_is_nan(run):
    nll = poison((3,), F32)
    run("token_nll", nll=nll, logits=np.zeros((3, 40), F32), targets=np.array([3, 40, -1]), vocabulary=40, seqs=3)
    close(nll[:1], np.log([40.0]), bits=20)
    assert np.isnan(nll[1:]).all()


@pytest.mark.parametrize("vocabulary", [1, 40, 131])
def test_token_nll_is_nan_where_a_row_is_unusable(run, rng, vocabulary):
    logits = np.concatenate([one_unusable(rng, vocabulary), np.full((1, vocabulary), -np.inf, F32)])
    nll = np.zeros(vocabulary + 1, F32)
    run(
        "token_nll",
        nll=nll,
        logits=logits,
        targets=rng.integers(0, vocabulary, vocabulary + 1),
        vocabulary=vocabulary,
        seqs=vocabulary + 1,
    )
    assert np.isnan(nll).all()


def test_token_nll_of_a_banned_target_is_infinite(run, rng):
    logits, nll = rng.normal(size=(2, 40)).astype(F32), poison((2,), F32)
    logits[:, 5] = -np.inf
    run("token_nll", nll=nll, logits=logits, targets=np.array([5, 6]), vocabulary=40, seqs=2)
    assert nll[0] == np.inf
    assert np.isfinite(nll[1])


@pytest.mark.parametrize("seqs", [1, 3])
@pytest.mark.parametrize("width", [64, 203])
def test_gather(same, rng, seqs, width):
    table, y = bf16(rng.normal(size=(50, width))), poison((seqs, width), BF16)
    for stride in (1, 8):
        ids = rng.integers(0, 50, (seqs, stride))
        same("gather_bf16", y=y, ids=ids, table=table, width=width, stride=stride, seqs=seqs)
        assert y.tobytes() == table[ids[:, 0]].tobytes()


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("hidden", [64, 203])
def test_rounding(same, rng, tokens, hidden):
    x, y = rng.normal(size=(tokens, hidden)).astype(F32), poison((tokens, hidden), BF16)
    same("to_bf16", y=y, x=x, hidden=hidden, tokens=tokens)
    assert y.tobytes() == bf16(x).tobytes()


@pytest.mark.parametrize("tokens", TOKENS)
def test_keys_alone_are_rotated_as_they_are_among_queries(run, rng, tokens):
    table = rng.normal(size=(90, 64)).astype(F32)
    rows, positions = bf16(rng.normal(size=(tokens, 7, 64))), rng.integers(0, 90, tokens)
    keys = rows[:, 3:].copy()
    run(
        "rope",
        qkv=rows,
        positions=positions,
        cos_sin=table,
        head_dim=64,
        row_stride=7 * 64,
        tokens=tokens,
        q_heads=3,
        kv_heads=2,
    )
    run(
        "k_rope",
        qkv=keys,
        positions=positions,
        cos_sin=table,
        head_dim=64,
        row_stride=4 * 64,
        tokens=tokens,
        kv_heads=2,
    )
    assert keys.tobytes() == rows[:, 3:].tobytes()
