"""Every CUDA kernel against float64 on a GPU: fresh random inputs, poisoned outputs, sizes of no whole tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from kern.contracts.text import PAGE
from kern.device.base import Device
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Round, Sizes
from kernels.choices import UNUSABLE, chosen, one_unusable, one_usable, ties
from kernels.cuda_harness import CudaLibrary, libraries_of
from kernels.harness import BF16, bf16, close, poison
from kernels.rounds import check_step_of_chain, mingle, play
from kernels.slots import (
    check_advance,
    check_begin,
    check_gather_rows,
    check_keep_tokens,
    check_lay_rows,
    check_lay_tokens,
)
from kernels.test_attention import LAYER, expected, filled

pytestmark = pytest.mark.gpu

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64
EPS = 1e-5
TOKENS = [1, 2, 17, 511, 512]
SIZES = {
    "group 4": Sizes(hidden=512, ffn=1536, q_heads=8, kv_heads=2, head_dim=128, sequences=8),
    "group 3": Sizes(hidden=576, ffn=1536, q_heads=9, kv_heads=3, head_dim=64, sequences=8),
    "group 1": Sizes(hidden=256, ffn=608, q_heads=4, kv_heads=4, head_dim=128, sequences=8),
    "few rows": Sizes(hidden=512, ffn=608, q_heads=4, kv_heads=2, head_dim=64, sequences=2),
    "long rows": Sizes(hidden=512, ffn=9728, q_heads=2, kv_heads=1, head_dim=64, sequences=8),
    "long rows of an odd length": Sizes(hidden=512, ffn=6176, q_heads=2, kv_heads=1, head_dim=64, sequences=4),
}


def plan(device: Device, name: str) -> CudaPlan:
    return CudaPlan(device.target, SIZES[name], round=Round(8, 6208 if "long" in name else 288, 32))


@pytest.fixture(scope="module")
def libraries(device: Device) -> Mapping[str, CudaLibrary]:
    return libraries_of(device, {name: plan(device, name) for name in SIZES})


@pytest.fixture(scope="module", params=SIZES)
def cuda(libraries: Mapping[str, CudaLibrary], request: pytest.FixtureRequest) -> CudaLibrary:
    return libraries[request.param]


def near(got: np.ndarray, want: np.ndarray, bits: int = 8) -> None:
    """Equal but for rounding to `bits`, and a hundredth of the usual size, from inputs rounded on their way."""
    close(got, want, bits=bits, slack=0.01 * float(np.sqrt((want**2).mean())) + 1e-6)


def near_attention(got: np.ndarray, wants: Sequence[np.ndarray], dim: int) -> None:
    """Each head within 0.5 % of its length, and each element within 2 % of its root mean square, of one of `wants`."""
    # The softmax's weights are rounded to bf16 before they multiply the values. That is little relative to a head's
    # length, but not to every element: one may be small because what many keys add to it cancels.
    got, *wants = (np.asarray(x, F64).reshape(*x.shape[:-1], -1, dim) for x in (got, *wants))
    nearest = np.argmin([np.linalg.norm(got - want, axis=-1) for want in wants], axis=0)
    want = np.take_along_axis(np.array(wants), nearest[None, ..., None], axis=0)[0]
    wrong, size = np.linalg.norm(got - want, axis=-1), np.linalg.norm(want, axis=-1)
    assert (wrong <= 5e-3 * size).all(), f"a head is off by {(wrong / size).max():.2%}"
    close(got, want, slack=0.02 * size[..., None] / dim**0.5)


def roundings(x: np.ndarray) -> list[np.ndarray]:
    """`x` in bf16, rounded from a little below and from a little above.

    An element half-way between two is either, as a kernel's float32 falls. Where a large one meets a large key, that
    alone moves a head by as much as 0.6 %.
    """
    return [rounded(x * (1 + slack)) for slack in (-1e-6, 1e-6)]


def normed(x, weight):
    x = np.asarray(x, F64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * weight.astype(F64)


def rounded(x):
    return bf16(x).astype(F64)


def silu(x):
    return x / (1 + np.exp(-x))


# Rows


@pytest.mark.parametrize("tokens", TOKENS)
def test_embedding(cuda, rng, tokens):
    hidden = cuda.sizes.hidden
    table, ids, x = bf16(rng.normal(size=(50, hidden))), rng.integers(0, 50, tokens), poison((tokens, hidden), F32)
    cuda.run("embedding", x=x, ids=ids, table=table, hidden=hidden, tokens=tokens)
    assert np.array_equal(x, table[ids].astype(F32))
    rows = poison((tokens, hidden), BF16)
    cuda.run("embedding_bf16", x=rows, ids=ids, table=table, hidden=hidden, tokens=tokens)
    assert rows.tobytes() == table[ids].tobytes()


@pytest.mark.parametrize("tokens", TOKENS)
def test_rounding(cuda, rng, tokens):
    hidden = cuda.sizes.hidden
    x, y = rng.normal(size=(tokens, hidden)).astype(F32), poison((tokens, hidden), BF16)
    cuda.run("to_bf16", y=y, x=x, hidden=hidden, tokens=tokens)
    assert y.tobytes() == bf16(x).tobytes()


@pytest.mark.parametrize("width", [64, 256, 203])
def test_gather(cuda, rng, width):
    table, ids, y = bf16(rng.normal(size=(50, width))), rng.integers(0, 50, (3, 8)), poison((3, width), BF16)
    cuda.run("gather_bf16", y=y, ids=ids, table=table, width=width, stride=8, seqs=3)
    assert y.tobytes() == table[ids[:, 0]].tobytes()


@pytest.mark.parametrize("tokens", TOKENS)
def test_norms(cuda, rng, tokens):
    hidden = cuda.sizes.hidden
    before, delta = rng.normal(size=(tokens, hidden)).astype(F32), bf16(rng.normal(size=(tokens, hidden)))
    weight, x = bf16(rng.normal(size=hidden)), before.copy()
    y, z = poison((tokens, hidden), BF16), poison((tokens, hidden), BF16)
    cuda.run("rms_norm", y=y, x=x, weight=weight, hidden=hidden, eps=EPS, tokens=tokens)
    cuda.run("add_rms_norm", y=z, x=x, delta=delta, weight=weight, hidden=hidden, eps=EPS, tokens=tokens)
    assert np.array_equal(x, before + delta.astype(F32))
    close(y, normed(before, weight))
    close(z, normed(x, weight))


@pytest.mark.parametrize("tokens", TOKENS)
def test_silu_mul(cuda, rng, tokens):
    ffn = cuda.sizes.ffn
    gate_up, y = bf16(rng.normal(size=(tokens, 2 * ffn)) * 4), poison((tokens, ffn), BF16)
    cuda.run("silu_mul", y=y, gate_up=gate_up, ffn=ffn, tokens=tokens)
    gate, up = np.split(gate_up.astype(F64), 2, axis=1)
    close(y, silu(gate) * up)


# Heads


def angles(rng, positions: int, dim: int) -> np.ndarray:
    """Any table will do: kernels do not know how it is made."""
    angle = rng.uniform(0, 7, size=(positions, dim // 2))
    return np.concatenate([np.cos(angle), np.sin(angle)], 1).astype(F32)


def rotated(heads, norm, row):
    """Heads [..., D], normed if there is a norm, rotated by a row of the table."""
    x = heads.astype(F64) if norm is None else normed(heads, norm)
    (low, high), (cos, sin) = np.split(x, 2, axis=-1), np.split(row.astype(F64), 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)


def run_rope_cache(cuda, qkv, positions, cos_sin, pool, slots, q_heads, norms) -> None:
    tokens, width = qkv.shape
    where = {"positions": positions, "cos_sin": cos_sin, "pool": pool[:, LAYER:], "slots": slots}
    sizes = {"q_heads": q_heads, "kv_heads": cuda.sizes.kv_heads, "head_dim": cuda.sizes.head_dim}
    call = {"qkv": qkv, "row_stride": width, "page_stride": pool[0].size, "tokens": tokens, **where, **sizes}
    if norms:
        cuda.run("norm_rope_cache", q_norm=norms[0], k_norm=norms[1], eps=EPS, **call)
    else:
        cuda.run("rope_cache", **call)


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("with_norms", [True, False])
def test_rope_and_cache(cuda, rng, tokens, with_norms):
    s = cuda.sizes
    dim, width = s.head_dim, (s.q_heads + 2 * s.kv_heads) * s.head_dim
    qkv, cos_sin = bf16(rng.normal(size=(tokens, width + dim))), angles(rng, 600, dim)
    before = qkv.reshape(tokens, -1, dim).copy()
    pool = bf16(rng.normal(size=(40, 2, 2, s.kv_heads, PAGE, dim)))
    positions, slots = rng.integers(0, 600, tokens), rng.permutation(40 * PAGE)[:tokens].astype(I64)
    slots[1::3] = -1
    wanted = pool.astype(F64)
    norms = (bf16(rng.normal(size=dim)), bf16(rng.normal(size=dim))) if with_norms else None
    q_norm, k_norm = norms or (None, None)
    q, k, v, rest = np.split(before, np.cumsum([s.q_heads, s.kv_heads, s.kv_heads]), axis=1)
    rows = cos_sin[positions][:, None]
    keys = rotated(k, k_norm, rows)
    for token in np.flatnonzero(slots >= 0):
        page, slot = divmod(slots[token], PAGE)
        wanted[page, LAYER, 0, :, slot] = keys[token]
        wanted[page, LAYER, 1, :, slot] = v[token]
    run_rope_cache(cuda, qkv, positions, cos_sin, pool, slots, s.q_heads, norms)
    after = qkv.reshape(tokens, -1, dim)
    close(after[:, : s.q_heads], rotated(q, q_norm, rows), slack=1e-4)
    assert np.array_equal(after[:, -1:].view(np.uint16), rest.view(np.uint16))
    close(pool, wanted, slack=1e-4)


@pytest.mark.parametrize("tokens", [1, 8, 511])
@pytest.mark.parametrize("with_norms", [True, False])
def test_rope_and_cache_of_rows_without_queries(cuda, rng, tokens, with_norms):
    s = cuda.sizes
    dim, width = s.head_dim, 2 * s.kv_heads * s.head_dim
    rows, cos_sin = bf16(rng.normal(size=(tokens, width))), angles(rng, 600, dim)
    pool = bf16(rng.normal(size=(40, 2, 2, s.kv_heads, PAGE, dim)))
    positions, slots = rng.integers(0, 600, tokens), rng.permutation(40 * PAGE)[:tokens].astype(I64)
    slots[1::3] = -1
    norm, wanted = bf16(rng.normal(size=dim)), pool.astype(F64)
    k, v = np.split(rows.reshape(tokens, -1, dim).copy(), 2, axis=1)
    keys = rotated(k, norm if with_norms else None, cos_sin[positions][:, None])
    for token in np.flatnonzero(slots >= 0):
        page, slot = divmod(slots[token], PAGE)
        wanted[page, LAYER, 0, :, slot], wanted[page, LAYER, 1, :, slot] = keys[token], v[token]
    run_rope_cache(cuda, rows, positions, cos_sin, pool, slots, 0, (norm, norm) if with_norms else None)
    close(pool, wanted, slack=1e-4)


# Attention


@pytest.mark.parametrize(
    ("lengths", "fresh"),
    [
        ([1], [1]),
        ([2], [2]),
        ([17], [17]),
        ([65], [65]),
        ([511], [511]),
        ([512], [512]),
        ([700], [188]),
        ([33, 5, 130], [33, 1, 77]),
        ([64, 16, 1, 80, 200, 31, 48, 129], [64, 16, 1, 16, 5, 31, 1, 128]),
    ],
)
def test_attention_prefill(cuda, rng, lengths, fresh):
    s = cuda.sizes
    cache, starts = filled(rng, lengths, s.kv_heads, s.head_dim), np.cumsum([0, *fresh])
    tokens, width = int(starts[-1]) + 3, s.q_size + 2 * s.kv_heads * s.head_dim
    qkv, out = bf16(rng.normal(size=(tokens, width))), poison((tokens, s.q_size), BF16)
    lens, seqs, where = np.array(lengths, I32), len(lengths), cache.arguments(s.q_heads, width)
    of = {"seq_lens": lens, "cu_seqlens": starts.astype(I32), "seqs": seqs, "tokens": tokens, "scale": 0.2}
    cuda.run("attention_prefill", o=out, q=qkv, **of, **where)
    q = qkv[:, : s.q_size].reshape(tokens, s.q_heads, s.head_dim)
    want = [
        expected(q[starts[seq] + i], cache, seq, lengths[seq] - fresh[seq] + i + 1, 0.2)
        for seq in range(seqs)
        for i in range(fresh[seq])
    ]
    near_attention(out[: starts[-1]], [np.array(want)], s.head_dim)
    assert np.isnan(out[starts[-1] :].astype(F32)).all()


def test_an_unusable_query_is_seen_in_what_prefill_makes_of_it(cuda, rng):
    s, length = cuda.sizes, 40
    cache, width = filled(rng, [length], s.kv_heads, s.head_dim), s.q_size + 2 * s.kv_heads * s.head_dim
    qkv, out = bf16(rng.normal(size=(length, width))), np.zeros((length, s.q_size), BF16)
    qkv[7, s.head_dim + 3] = np.nan
    lens, starts = np.array([length], I32), np.array([0, length], I32)
    of = {"seq_lens": lens, "cu_seqlens": starts, "seqs": 1, "tokens": length, "scale": 0.2}
    cuda.run("attention_prefill", o=out, q=qkv, **of, **cache.arguments(s.q_heads, width))
    bad = np.isnan(out.astype(F32)).reshape(length, s.q_heads, s.head_dim)
    assert np.argwhere(bad.all(-1)).tolist() == np.argwhere(bad.any(-1)).tolist() == [[7, 1]]


class Step:
    """One token for each sequence, whose context is in the pool but for that token's own keys and values."""

    def __init__(self, rng: np.random.Generator, s: Sizes, lengths: list[int], pages: int | None = None) -> None:
        self.s, self.lengths = s, lengths
        self.cache = filled(rng, lengths, s.kv_heads, s.head_dim, pages)
        self.width = s.q_size + 2 * s.kv_heads * s.head_dim
        self.qkv = bf16(rng.normal(size=(len(lengths), self.width)))
        self.norms = bf16(rng.normal(size=s.head_dim)), bf16(rng.normal(size=s.head_dim))
        self.cos_sin = angles(rng, max(lengths) + 1, s.head_dim)

    def slots(self, lengths: list[int]) -> np.ndarray:
        """Of each sequence's last token; -1 past the table's end."""
        table = self.cache.table
        found = [
            table[seq, (n - 1) // PAGE] * PAGE + (n - 1) % PAGE if n <= table.shape[1] * PAGE else -1
            for seq, n in enumerate(lengths)
        ]
        return np.array(found, I64)

    def run(self, cuda: CudaLibrary, with_norms: bool, rows: slice = slice(None), given: list[int] | None = None):
        """Outputs and the pool of these rows, as if there were no others."""
        lengths, s, cache = (given or self.lengths)[rows], self.s, self.cache
        pool, seqs = cache.pool.copy(), len(lengths)
        out = poison((seqs, s.q_size), BF16)
        step = {"positions": np.array(lengths, I64) - 1, "seq_lens": np.array(lengths, I32), "cos_sin": self.cos_sin}
        slots = self.slots(given or self.lengths)[rows].copy()
        where = {**cache.arguments(s.q_heads, self.width, rows), "pool": pool[:, LAYER:], "slots": slots}
        call = {"o": out, "qkv": self.qkv[rows].copy(), "scale": 0.2, "seqs": seqs, **step, **where}
        if with_norms:
            cuda.run("norm_append_attention", q_norm=self.norms[0], k_norm=self.norms[1], eps=EPS, **call)
        else:
            cuda.run("append_attention", **call)
        return out, pool

    def expected(self, with_norms: bool, stored: np.ndarray | None):
        """Outputs, for either rounding of the queries, and the pool, in float64.

        `stored` is the pool with the tokens' keys as they were rounded; None where they have no slot.
        """
        s, cache, want = self.s, self.cache, []
        heads = self.qkv.reshape(len(self.lengths), -1, s.head_dim)
        q_norm, k_norm = self.norms if with_norms else (None, None)
        pool = cache.pool.astype(F64)
        for seq, length in enumerate(self.lengths):
            row = self.cos_sin[length - 1]
            q, k, v = np.split(heads[seq], np.cumsum([s.q_heads, s.kv_heads]))
            if stored is not None:
                page, slot = divmod(self.slots(self.lengths)[seq], PAGE)
                cache.keys[seq][-1], cache.values[seq][-1] = stored[page, LAYER, 0, :, slot], v
                pool[page, LAYER, 0, :, slot], pool[page, LAYER, 1, :, slot] = rotated(k, k_norm, row), v
            want.append([expected(q, cache, seq, length, 0.2) for q in roundings(rotated(q, q_norm, row))])
        return np.stack(want, axis=1), pool


LENGTHS = [[1], [15], [16], [17], [64, 1, 131], [513], [5000], [1, 16, 17, 100, 272, 513, 48, 2]]


@pytest.mark.parametrize("with_norms", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_append_attention(cuda, rng, lengths, with_norms):
    step = Step(rng, cuda.sizes, lengths)
    # What the pool has in the token's own slot is of no consequence.
    for seq, slot in enumerate(step.slots(lengths)):
        step.cache.pool[slot // PAGE, LAYER, :, :, slot % PAGE] = np.nan
        step.cache.keys[seq][-1] = step.cache.values[seq][-1] = np.nan
    out, pool = step.run(cuda, with_norms)
    wants, wanted = step.expected(with_norms, stored=pool)
    pool = pool.astype(F64)
    assert np.array_equal(np.isnan(pool), np.isnan(wanted))
    close(np.nan_to_num(pool), np.nan_to_num(wanted), slack=1e-4)
    near_attention(out, wants, cuda.sizes.head_dim)


@pytest.mark.parametrize("length", [1, 40, 5000])
def test_an_unusable_query_is_seen_in_what_a_step_makes_of_it(cuda, rng, length):
    step = Step(rng, cuda.sizes, [length])
    step.qkv[0, cuda.sizes.head_dim + 3] = np.nan
    out, _ = step.run(cuda, with_norms=False)
    bad = np.isnan(out.astype(F32)).reshape(-1, cuda.sizes.head_dim)
    assert np.flatnonzero(bad.all(-1)).tolist() == np.flatnonzero(bad.any(-1)).tolist() == [1]


@pytest.mark.parametrize("with_norms", [True, False])
def test_attention_is_the_same_for_any_number_of_sequences(cuda, rng, with_norms):
    step = Step(rng, cuda.sizes, [1, 16, 17, 100, 272, 513, 48, 2])
    whole, _ = step.run(cuda, with_norms)
    for rows in (slice(0, 1), slice(4, 5), slice(2, 5)):
        some, _ = step.run(cuda, with_norms, rows)
        assert np.array_equal(some.view(np.uint16), whole[rows].view(np.uint16))


def test_attention_past_the_capacity_sees_the_pages_there_are(cuda, rng):
    step = Step(rng, cuda.sizes, [48, 48, 48], pages=3)
    out, pool = step.run(cuda, False, given=[49, 1000, 2**31 - 1])
    wants, _ = step.expected(False, stored=None)
    assert np.array_equal(pool.view(np.uint16), step.cache.pool.view(np.uint16))
    near_attention(out, wants, cuda.sizes.head_dim)


# Products


def product(cuda, rng, entry: str, m: int, n: int) -> dict[str, np.ndarray]:
    """Inputs of one product, with outputs to be written."""
    s = cuda.sizes
    ffn = cuda.round.ffn if entry.endswith("_draft") else s.ffn
    k = {"output": s.q_size, "down": ffn}.get(entry.partition("_")[0], s.hidden)
    pairs = 2 if entry.startswith("rms_gate_up") else 1
    squares = np.zeros((m, cuda.squares), F32)
    squares[:, :5] = rng.uniform(0, k, size=(m, 5))
    return {
        "c": poison((m, n), F32 if "f32" in entry or "logits" in entry else BF16),
        "residual": rng.normal(size=(m, n)).astype(F32),
        "squares": poison(squares.shape, F32) if "add" in entry else squares,
        "x": rng.normal(size=(m, k)).astype(F32) if "residual" in entry else bf16(rng.normal(size=(m, k))),
        "weight": bf16(rng.normal(size=n)),
        "w": bf16(rng.normal(size=(pairs * n, k)) * k**-0.5),
    }


def run_product(cuda, entry: str, p: dict[str, np.ndarray]) -> None:
    (m, n), k = p["c"].shape, p["w"].shape[1]
    if "add" in entry:
        args = {name: p[name] for name in ("squares", "residual", "x", "weight")} | {"weighted": p["c"]}
    elif "rms" in entry:
        args = {"y": p["c"], "weighted": p["x"], "squares": p["squares"], "eps": EPS}
    else:
        args = {"y": p["c"], "x": p["x"]}
    cuda.run(entry, w=p["w"], m=m, n=n, k=k, tokens=m, seqs=m, **args)


ADDED = ["output_matmul_add", "down_matmul_add", "output_matmul_add_rows", "down_matmul_add_rows"]
ADDED += ["down_matmul_add_draft"]
FREE = ["rms_matmul", "rms_matmul_f32", "rms_gate_up", "output_matmul", "down_matmul", "qkv_matmul", "gate_up_matmul"]
FREE += ["logits_matmul", "rms_matmul_rows", "hidden_matmul_rows", "residual_matmul_f32"]
"""Products of any number of columns."""


@pytest.mark.parametrize("entry", FREE)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 7), (1, 2560), (1, 9728), (2, 133), (3, 1000), (8, 5003), (8, 64)])
def test_products(cuda, rng, entry, m, n):
    p = product(cuda, rng, entry, m, n)
    run_product(cuda, entry, p)
    want = bf16(p["x"]).astype(F64) @ p["w"].astype(F64).T
    if "rms" in entry:
        want *= (p["squares"].astype(F64).sum(axis=1, keepdims=True) / cuda.sizes.hidden + EPS) ** -0.5
    if entry == "rms_gate_up":
        gate, up = np.split(want, 2, axis=1)
        want = silu(gate) * up
    near(p["c"], want)


@pytest.mark.parametrize("entry", ADDED)
@pytest.mark.parametrize("m", [1, 2, 7, 8])
def test_products_that_are_added(cuda, rng, entry, m):
    p = product(cuda, rng, entry, m, cuda.sizes.hidden)
    before = p["residual"].copy()
    run_product(cuda, entry, p)
    near(p["residual"] - before, p["x"].astype(F64) @ p["w"].astype(F64).T)
    assert np.array_equal(p["c"].view(np.uint16), bf16(p["residual"] * p["weight"].astype(F32)).view(np.uint16))
    np.testing.assert_allclose(p["squares"].sum(axis=1), (p["residual"].astype(F64) ** 2).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("m", [1, 3, 8])
def test_a_product_added_to_a_sum(cuda, rng, m):
    p = product(cuda, rng, "residual_matmul_acc_f32", m, 777)
    p["c"] = rng.normal(size=(m, 777)).astype(F32)
    before = p["c"].astype(F64)
    run_product(cuda, "residual_matmul_acc_f32", p)
    near(p["c"], before + bf16(p["x"]).astype(F64) @ p["w"].astype(F64).T)


@pytest.mark.parametrize("entry", [*FREE, *ADDED])
def test_products_are_the_same_for_any_number_of_rows(cuda, rng, entry):
    p = product(cuda, rng, entry, 8, cuda.sizes.hidden if entry in ADDED else 300)
    before = {name: value.copy() for name, value in p.items()}
    run_product(cuda, entry, p)
    for rows in (slice(0, 1), slice(5, 6), slice(2, 5)):
        some = {name: value if name in ("weight", "w") else value[rows].copy() for name, value in before.items()}
        run_product(cuda, entry, some)
        assert some["c"].tobytes() == p["c"][rows].tobytes()


@pytest.mark.parametrize("tokens", [1, 2, 8])
def test_weighted_embedding(cuda, rng, tokens):
    h = cuda.sizes.hidden
    table, weight, ids = bf16(rng.normal(size=(50, h))), bf16(rng.normal(size=h)), rng.integers(0, 50, tokens)
    weighted, squares = poison((tokens, h), BF16), poison((tokens, cuda.squares), F32)
    ids[-1] -= 50 * (tokens > 1)  # below 0: no token, looked up as the first
    x = poison((tokens, h), F32)
    cuda.run(
        "embedding_weighted",
        weighted=weighted,
        squares=squares,
        x=x,
        ids=ids,
        table=table,
        weight=weight,
        hidden=h,
        tokens=tokens,
        seqs=1,
    )
    assert np.array_equal(x, table[np.maximum(ids, 0)].astype(F32))
    assert np.array_equal(weighted.view(np.uint16), bf16(x * weight.astype(F32)).view(np.uint16))
    np.testing.assert_allclose(squares.sum(axis=1), (x.astype(F64) ** 2).sum(axis=1), rtol=1e-6)


# Logits and feedback


@pytest.mark.parametrize("n", [1, 63, 64, 1000, 151_936])
@pytest.mark.parametrize("seqs", [1, 3, 8])
def test_argmax(cuda, rng, seqs, n):
    logits, found = rng.normal(size=(seqs, n)).astype(F32), np.full(seqs, -77, I64)
    logits[0, rng.integers(0, n, 5)] = 9.0  # ties go to the lowest
    logits[-1, rng.integers(0, n, 3)] = -np.inf
    cuda.run("argmax", next=found, logits=logits, vocabulary=n, seqs=seqs)
    assert found.tolist() == chosen(logits)


@pytest.mark.parametrize("tokens", [1, 8])
def test_argmax_of_every_row(cuda, rng, tokens):
    logits, found = rng.normal(size=(tokens, 151_936)).astype(F32), np.full(tokens, -77, I64)
    cuda.run("argmax_rows", next=found, logits=logits, vocabulary=151_936, tokens=tokens)
    assert np.array_equal(found, logits.argmax(-1))


@pytest.mark.parametrize("n", [1, 63, 64, 65, 257, 1000, 3000])
def test_argmax_gives_no_token_for_a_nan_or_positive_infinity_anywhere(cuda, rng, n):
    for rows in (one_unusable(rng, n), one_usable(rng, n), ties(rng, n)):
        found = np.full(len(rows), -77, I64)
        cuda.run("argmax", next=found, logits=rows, vocabulary=n, seqs=len(rows))
        assert found.tolist() == chosen(rows)


@pytest.mark.parametrize("n", [49_152, 151_936])
def test_argmax_of_a_long_row_sees_each_unusable_value(cuda, rng, n):
    logits, found = rng.normal(size=(256, n)).astype(F32), np.full(256, -77, I64)
    at = np.concatenate([[0, n - 1], rng.integers(0, n, 252)])
    logits.view(np.uint32)[np.arange(254), at] = rng.choice(UNUSABLE, 254)
    logits[254] = -np.inf
    cuda.run("argmax_rows", next=found, logits=logits, vocabulary=n, tokens=256)
    assert found.tolist() == [-1] * 255 + [int(logits[255].argmax())]


def test_no_token_is_looked_up_as_the_first(cuda, rng):
    hidden, ids = cuda.sizes.hidden, np.array([3, -1, 0, np.iinfo(I64).min, 6])
    table = bf16(rng.normal(size=(7, hidden)))
    for entry, dtype in (("embedding", F32), ("embedding_bf16", BF16), ("gather_bf16", BF16)):
        rows = poison((5, hidden), dtype)
        args = {"x": rows, "hidden": hidden}
        if entry == "gather_bf16":
            args = {"y": rows, "width": hidden, "stride": 1}
        cuda.run(entry, ids=ids, table=table, tokens=5, seqs=5, **args)
        assert np.array_equal(rows.astype(F32), table[[3, 0, 0, 0, 6]].astype(F32))


@pytest.mark.parametrize("n", [1, 63, 1000, 49_152])
def test_token_nll_is_nan_where_a_row_is_unusable(cuda, rng, n):
    logits, targets = rng.normal(size=(16, n)).astype(F32), rng.integers(0, n, 16)
    at = np.where(np.arange(16) % 2, targets, rng.integers(0, n, 16))
    logits.view(np.uint32)[np.arange(14), at[:14]] = np.resize(UNUSABLE, 14)
    logits[14] = -np.inf
    targets[15] = n
    nll = np.zeros(16, F32)
    cuda.run("token_nll", nll=nll, logits=logits, targets=targets, vocabulary=n, seqs=16)
    assert np.isnan(nll).all()


def test_token_nll_of_a_banned_target_is_infinite(cuda, rng):
    logits, nll = rng.normal(size=(1, 1000)).astype(F32), np.full(1, np.nan, F32)
    logits[0, 5] = -np.inf
    cuda.run("token_nll", nll=nll, logits=logits, targets=np.array([5]), vocabulary=1000, seqs=1)
    assert nll[0] == np.inf


@pytest.mark.parametrize("tokens", [1, 2, 64])
@pytest.mark.parametrize("n", [1, 63, 1000, 49_152])
def test_token_nll(cuda, rng, tokens, n):
    logits, targets = (rng.normal(size=(tokens, n)) * 20).astype(F32), rng.integers(0, n, tokens)
    nll = poison((tokens,), F32)
    cuda.run("token_nll", nll=nll, logits=logits, targets=targets, vocabulary=n, seqs=tokens)
    wide = logits.astype(F64)
    top = wide.max(-1)
    want = np.log(np.exp(wide - top[:, None]).sum(-1)) + top - wide[np.arange(tokens), targets]
    close(nll, want, bits=18, slack=2e-5)


@pytest.mark.parametrize(("seqs", "slots"), [(1, 1), (1, 5), (3, 3), (8, 5), (40, 64), (100, 200)])
@pytest.mark.parametrize("check", [check_begin, check_advance, check_lay_tokens, check_keep_tokens])
def test_slots(cuda, rng, check, seqs, slots):
    for _ in range(4):
        check(cuda.run, rng, seqs, slots)


@pytest.mark.parametrize("pages", [1, 3])
@pytest.mark.parametrize(("seqs", "slots"), [(1, 1), (1, 5), (8, 5), (40, 64), (100, 200)])
def test_rows_of_a_step(cuda, rng, seqs, slots, pages):
    for _ in range(4):
        check_lay_rows(cuda.run, rng, seqs, slots, pages)


@pytest.mark.parametrize("width", [1, 576, 4099])
@pytest.mark.parametrize("seqs", [1, 7, 64])
def test_gathered_rows(cuda, rng, seqs, width):
    check_gather_rows(cuda.run, rng, BF16, seqs, width)


@pytest.mark.parametrize("seqs", [1, 3, 8])
@pytest.mark.parametrize("block", [1, 7])
def test_rounds(cuda, rng, seqs, block):
    play(cuda.run, rng, block, pages=30, starts=[0, 15, 16, 1, 7, 8, 100, 3][:seqs], count=20)


def test_rounds_past_the_last_page(cuda, rng):
    play(cuda.run, rng, 7, pages=2, starts=[20, 31], count=12)


@pytest.mark.parametrize("block", [1, 7])
def test_rows_of_a_round_come_go_and_change_places(cuda, rng, block):
    mingle(cuda.run, rng, 5, block, count=20)


@pytest.mark.parametrize("vocabulary", [1, 7, 1000])
@pytest.mark.parametrize(("seqs", "rows"), [(1, 2), (1, 8), (3, 8), (8, 4)])
def test_a_step_of_a_chain_adds_to_one_row_of_each_sequence(cuda, rng, vocabulary, seqs, rows):
    check_step_of_chain(cuda.run, rng, vocabulary, seqs, rows)
