"""The steps of a draft's chain on a GPU, against float64: odd ranks and vocabularies, ties, NaNs, whole chains."""

from __future__ import annotations

import numpy as np
import pytest

from kern.device.base import Device
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Round, Sizes
from kernels.choices import UNUSABLE, chosen
from kernels.cuda_harness import CudaLibrary, libraries_of
from kernels.harness import bf16

pytestmark = pytest.mark.gpu

F32, F64, I64 = np.float32, np.float64, np.int64
SIZES = Sizes(hidden=128, ffn=256, q_heads=4, kv_heads=2, head_dim=64)
RANKS = [32, 64, 96, 256, 512]
VOCABULARIES = [1, 7, 1000, 49_152, 151_936]


@pytest.fixture(scope="module")
def libraries(device: Device) -> dict[int, CudaLibrary]:
    plans = {rank: CudaPlan(device.target, SIZES, round=Round(8, SIZES.ffn, rank)) for rank in RANKS}
    return libraries_of(device, {rank: plan for rank, plan in plans.items() if plan.markov_slots})


@pytest.fixture(params=RANKS)
def rank(libraries, request: pytest.FixtureRequest) -> int:
    if request.param not in libraries:
        pytest.skip("a row of that rank has no room here")
    return request.param


@pytest.fixture(params=[1, 8])
def seqs(request: pytest.FixtureRequest) -> int:
    return int(request.param)


class Chain:
    """A Markov head, and `rows` rows of logits of each of `seqs` sequences, which it moves."""

    def __init__(
        self,
        rng: np.random.Generator,
        cuda: CudaLibrary,
        rank: int,
        vocabulary: int,
        rows: int = 1,
        seqs: int = 1,
    ) -> None:
        self.cuda, self.rank, self.vocabulary, self.seqs, self.rows = cuda, rank, vocabulary, seqs, rows
        self.matrix = bf16(rng.standard_normal((vocabulary, rank), dtype=F32))
        self.table = np.roll(self.matrix, 1, axis=0)
        self.logits = rng.standard_normal((seqs, rows, vocabulary), dtype=F32) * F32(rank**0.5)
        self.before = self.logits.astype(F64)
        self.tokens = np.full((seqs, rows + 1), -77, I64)
        self.tokens[:, 0] = rng.integers(0, vocabulary, seqs)

    def step(self, row: int = 0) -> None:
        """The token of `row` of each sequence to that of the next."""
        tokens, logits = self.tokens.reshape(-1), self.logits.reshape(-1)
        views = {"next": tokens[row + 1 :], "logits": logits[row * self.vocabulary :], "before": tokens[row:]}
        head = {"w1": self.table, "w2": self.matrix, "vocabulary": self.vocabulary, "rank": self.rank}
        self.cuda.run("markov_argmax", **views, **head, seqs=self.seqs, rows=self.rows + 1)

    def check(self, row: int = 0) -> None:
        """The logits within rounding of their sums; the token is the first maximum of those that were written."""
        w = self.matrix.astype(F64)
        for s in range(self.seqs):
            x = self.table[max(self.tokens[s, row], 0)].astype(F64)
            got, want = self.logits[s, row].astype(F64), self.before[s, row] + w @ x
            bound = 2.0**-20 * (np.abs(self.before[s, row]) + np.abs(w) @ np.abs(x))
            assert np.array_equal(np.isnan(got), np.isnan(want))
            sound = np.isfinite(want)
            assert (np.abs(got[sound] - want[sound]) <= bound[sound]).all()
            assert np.array_equal(got[~sound], want[~sound], equal_nan=True)
            assert [self.tokens[s, row + 1]] == chosen(self.logits[s, row : row + 1])


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_a_step(libraries, rng, rank, vocabulary, seqs):
    chain = Chain(rng, libraries[rank], rank, vocabulary, seqs=seqs)
    chain.step()
    chain.check()


@pytest.mark.parametrize("vocabulary", [1, 7, 1001, 9_999])
@pytest.mark.parametrize("seqs", range(2, 9))
def test_a_step_of_any_number_of_sequences(libraries, rng, rank, vocabulary, seqs):
    chain = Chain(rng, libraries[rank], rank, vocabulary, rows=2, seqs=seqs)
    for row in range(2):
        chain.step(row)
        chain.check(row)


def test_each_sequence_has_the_bits_that_it_has_alone(libraries, rng, rank):
    chain = Chain(rng, libraries[rank], rank, 9_999, rows=2, seqs=8)
    alone = Chain(rng, libraries[rank], rank, 9_999, rows=2)
    alone.matrix, alone.table = chain.matrix, chain.table
    fresh = chain.logits.copy()
    for row in range(2):
        chain.step(row)
    for s in range(8):
        alone.logits[0], alone.tokens[0] = fresh[s], [chain.tokens[s, 0], -77, -77]
        for row in range(2):
            alone.step(row)
        assert alone.logits.tobytes() == chain.logits[s].tobytes()
        assert alone.tokens[0].tolist() == chain.tokens[s].tolist()


@pytest.mark.parametrize("vocabulary", [1000, 49_151])
def test_each_token_follows_from_the_one_before(libraries, rng, rank, vocabulary, seqs):
    chain = Chain(rng, libraries[rank], rank, vocabulary, rows=7, seqs=seqs)
    for row in range(7):
        rest = chain.logits[:, row + 1 :].copy()
        chain.step(row)
        chain.check(row)
        assert np.array_equal(chain.logits[:, row + 1 :], rest)
    assert all(len(set(tokens)) > 3 for tokens in chain.tokens.tolist())


@pytest.mark.parametrize("vocabulary", [1000, 151_936])
def test_ties_go_to_the_lowest(libraries, rng, rank, vocabulary, seqs):
    chain = Chain(rng, libraries[rank], rank, vocabulary, seqs=seqs)
    equal = np.sort(rng.choice(vocabulary, 5, replace=False))
    chain.matrix[equal] = 0
    chain.logits[:, 0, equal] = chain.before[:, 0, equal] = 1e4
    chain.step()
    chain.check()
    assert chain.tokens[:, 1].tolist() == [equal[0]] * seqs


@pytest.mark.parametrize("vocabulary", [1000, 49_152])
def test_a_nan_leaves_no_token_and_stays_where_it_is(libraries, rng, rank, vocabulary, seqs):
    for where in ("logits", "matrix"):
        chain = Chain(rng, libraries[rank], rank, vocabulary, seqs=seqs)
        some = rng.choice(vocabulary, 3, replace=False)
        if where == "logits":
            chain.logits[-1, 0, some] = chain.before[-1, 0, some] = np.nan
        else:
            chain.matrix[some, rng.integers(0, rank, 3)] = np.nan
        chain.step()
        chain.check()
        without = [token == -1 for token in chain.tokens[:, 1]]
        assert without == [where == "matrix"] * (seqs - 1) + [True]


@pytest.mark.parametrize("at", [0, 1, 7, 8, 500, 998, 999])
def test_an_unusable_value_anywhere_leaves_no_token(libraries, rng, rank, at, seqs):
    for bits in UNUSABLE:
        chain = Chain(rng, libraries[rank], rank, 1000, seqs=seqs)
        chain.logits.view(np.uint32)[0, 0, at] = bits
        chain.step()
        assert [token == -1 for token in chain.tokens[:, 1]] == [True] + [False] * (seqs - 1)


def test_banned_ids_are_not_chosen(libraries, rng, rank, seqs):
    chain = Chain(rng, libraries[rank], rank, 1000, seqs=seqs)
    chain.logits[:] = chain.before[:] = -np.inf
    chain.logits[:, 0, 321] = chain.before[:, 0, 321] = 0
    chain.step()
    chain.check()
    assert chain.tokens[:, 1].tolist() == [321] * seqs
    chain.logits[:] = -np.inf
    chain.step()
    assert chain.tokens[:, 1].tolist() == [-1] * seqs


def test_no_token_is_followed_as_the_first_is(libraries, rng, rank, seqs):
    chain = Chain(rng, libraries[rank], rank, 1000, seqs=seqs)
    chain.tokens[:, 0] = -1
    chain.step()
    chain.check()


def test_the_same_bytes_each_time(libraries, rng, rank, seqs):
    chain = Chain(rng, libraries[rank], rank, 49_152, seqs=seqs)
    fresh = chain.logits.copy()
    chain.step()
    first, tokens = chain.logits.copy(), chain.tokens[:, 1].tolist()
    for _ in range(3):
        chain.logits[:] = fresh
        chain.step()
        assert chain.logits.tobytes() == first.tobytes()
        assert chain.tokens[:, 1].tolist() == tokens
