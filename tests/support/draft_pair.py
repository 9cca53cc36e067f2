"""A target and its draft built from folders, and their programs run one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import kern
from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.contracts.text import PAGE, ROUND
from kern.runtime.executable import Executable
from support.draft_reference import DraftReference, save_draft
from support.hf_folder import save_model
from support.reference import F32

CAPACITY = 128


class Pair:
    """A target and a draft, built and loaded, with their reference."""

    def __init__(
        self, folder: Path, checkpoint: RandomCheckpoint, reference: DraftReference, *, target: str, **options: Any
    ) -> None:
        self.reference, self.block = reference, int(reference.config["block_size"])
        model = save_model(folder / "model", checkpoint)
        draft = save_draft(folder / "draft", reference.config, reference.tensors)
        family = checkpoint.config.family
        options = {"sequences": 1, **options}
        build(BuildOptions(family, checkpoint=model, target=target, draft=draft, **options), folder / "built")
        self.executable: Executable = kern.load(folder / "built", capacity=CAPACITY, sharing=False)
        self.pages = CAPACITY // PAGE
        self.executable.write("block_table", np.arange(self.pages, dtype=np.int32)[::-1].reshape(1, -1), self.values(1))

    def run(self, program: str, tokens: int) -> None:
        self.executable.run(program, self.values(tokens))

    def values(self, tokens: int) -> dict[str, int]:
        return {"tokens": tokens, "seqs": 1, "pages": self.pages}

    def place(self, ids: Sequence[int], start: int) -> None:
        positions = np.arange(start, start + len(ids))
        write, last, values = self.executable.write, CAPACITY // PAGE - 1, self.values(len(ids))
        write("token_ids", list(ids), values)
        write("positions", positions, values)
        write("slot_mapping", (last - positions // PAGE) * PAGE + positions % PAGE, values)
        write("seq_lens", [start + len(ids)], values)
        write("cu_seqlens_q", [0, len(ids)], values)

    def prefill(self, ids: Sequence[int], chunks: Sequence[int] | None = None) -> None:
        start = 0
        for chunk in chunks or ([len(ids)] if ids else []):
            self.place(ids[start : start + chunk], start)
            self.run("prefill", chunk)
            start += chunk
        assert start == len(ids)

    def begin(self, anchor: int, position: int) -> None:
        self.place([anchor], position)
        self.executable.write("row_slots", [0], self.values(1))
        self.run("begin_spec", 1)

    def read(self, name: str, rows: int) -> F32:
        """Rows of a carry, or of a round's logits: other workspaces are internal to a kernel."""
        assert name == "round_logits" or self.executable.manifest.buffers[name].class_ == "carry"
        found = np.asarray(self.executable.read(name))
        return found[:rows].astype(np.float32)

    def block_logits(self) -> F32:
        """f32 [block, vocabulary] after `draft`, without what the tokens drafted added to them."""
        added = [self.reference.bias(token) for token in self.ids("round_tokens")[: self.block]]
        return self.read("round_logits", self.block) - np.stack(added)

    def draft_state(self, tokens: int) -> F32:
        """f32 [tokens, layers, 2, kv_heads, head_dim]: the draft's keys and values of the first positions."""
        config = self.reference.config
        shape = config["num_hidden_layers"], 2, config["num_key_value_heads"], PAGE, config["head_dim"]
        pages = self.executable.read_state("draft_kv").view(ml_dtypes.bfloat16).reshape(-1, *shape)
        slots = np.moveaxis(pages[::-1], 4, 1).reshape(-1, *shape[:3], shape[4])
        return slots[:tokens].astype(np.float32)

    def check_draft_state(self, ids: Sequence[int], within: float) -> None:
        """The draft's state holds every layer's keys and values of `ids`, from position 0 on."""
        found = self.draft_state(len(ids))
        for layer in range(found.shape[1]):
            for half, want in enumerate(self.reference.keys_and_values(layer, ids)):
                near(found[:, layer, half], want, within)

    def round(self, *programs: str) -> None:
        """The programs of a round, or some of them."""
        for name in programs or ROUND:
            self.run(name, self.block if name == "draft" else self.block + 1)

    def ids(self, name: str) -> list[int]:
        """A carry of integers."""
        found: list[int] = np.asarray(self.executable.read(name)).tolist()
        return found


def near(got: F32, want: F32, within: float) -> None:
    """Each row off by less than this part of its length."""
    assert got.shape == want.shape
    wrong, size = (np.sqrt((x * x).sum(axis=tuple(range(1, x.ndim)))) for x in (got - want, want))
    assert (wrong <= within * size).all(), f"a row is off by {(wrong / size).max():.2%}"
