"""The options of a build, and the checks that they agree with each other and with the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_type_hints

from kern.checkpoints.config import FAMILIES, TransformerConfig
from kern.manifest.errors import KernError, variant
from kern.models.buffers import MAX_SEQUENCES, Limits
from kern.models.speculation.draft import RANDOM
from kern.models.speculation.programs import MAX_SPECULATED

KNOWN_MODELS: Final = ("smollm2",)
GPU_SEQUENCES: Final = 64
"""The sequences of a call on a GPU, if no number is given."""
HOST_SEQUENCES: Final = 8
"""The same on the host, which computes more slowly than it reads."""


BuildError = variant(KernError, "build-options", "Invalid build options.", exit_code=2)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What to build: `model` is a family (`llama`, `qwen3`) or a known model (`smollm2`).

    A family takes its weights from `checkpoint` (a Hugging Face folder or a GGUF file), or with `random` from a
    generator seeded with `seed` (None is 0), at the sizes of the preset `config`. `target` is `host`, an instruction
    set such as `x86-64-v3`, an architecture such as `sm_90a`, or `auto` for this machine. One call takes at most
    `sequences` sequences and `chunk` tokens of prompts; None is 64 sequences on a GPU, 8 on the host or with
    a draft, and 1 on recorded kernels. `weights=False` leaves the weights file out.
    `capture` is a recording of vLLM running the same model: the layers then run on its kernels, for one sequence, and
    `auto` is the target that those were built for.
    `draft` is a DSpark checkpoint's folder, or `random` for a draft of random weights and the true shape: the folder
    then holds the programs of speculation too. `taps_before` takes each of its features one layer earlier.
    `strict` refuses a checkpoint with unknown settings, which a warning names otherwise.
    """

    model: str
    checkpoint: str | Path | None = None
    random: bool = False
    seed: int | None = None
    config: str | None = None
    target: str = "auto"
    sequences: int | None = None
    chunk: int = Limits().chunk
    weights: bool = True
    capture: str | Path | None = None
    draft: str | Path | None = None
    taps_before: bool = False
    strict: bool = False

    def limits(self, *, host: bool, round_rows: int | None = None) -> Limits:
        """The greatest sizes of a call, on the host or on a GPU; `round_rows` are those of a draft's round."""
        if self.sequences is not None:
            return Limits(self.chunk, self.sequences)
        if self.capture is not None:
            return Limits(self.chunk, 1)
        if round_rows is not None:
            return Limits(self.chunk, min(MAX_SPECULATED, self.chunk // round_rows))
        return Limits(self.chunk, min(self.chunk, HOST_SEQUENCES if host else GPU_SEQUENCES))

    @property
    def label(self) -> str:
        """The model's name in its manifest."""
        if self.config is None:
            return self.model
        return self.config if self.config.startswith(self.model) else f"{self.model} {self.config}"

    def check(self) -> None:
        """Raises BuildError for options of another type, and for options that contradict each other."""
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                given = f"{value!r:.40}, of type {type(value).__name__}"
                raise BuildError(f"{name} is {given}", f"give a value of type {getattr(kind, '__name__', kind)}")
        self._check_weights()
        if self.seed is not None and (self.seed < 0 or not (self.random or self.draft == RANDOM)):
            reason = "is below 0" if self.seed < 0 else "is for random weights only"
            raise BuildError(f"the seed {self.seed} {reason}", "leave --seed out, or give 0 or more with --random")
        if self.draft is None and self.taps_before:
            raise BuildError("--taps-before needs a draft", "give --draft, or leave --taps-before out")
        if self.draft is not None and self.capture is not None:
            raise BuildError("a draft runs on kern's own kernels only", "leave either --draft or --capture out")
        if self.draft is not None and (self.sequences or 1) > MAX_SPECULATED:
            raise BuildError(
                f"a draft serves up to {MAX_SPECULATED} sequences at once, and --sequences is {self.sequences}",
                f"give --sequences {MAX_SPECULATED} or fewer, or leave --draft out",
            )
        self._check_sequences(1 if self.sequences is None else self.sequences)

    def _check_sequences(self, sequences: int) -> None:
        if sequences > MAX_SEQUENCES:
            raise BuildError(
                f"--sequences is {sequences}; the limit is {MAX_SEQUENCES:,}", f"give {MAX_SEQUENCES} or less"
            )
        if sequences > self.chunk:
            raise BuildError(
                f"a decode step of {sequences} sequences has as many tokens, and --chunk allows {self.chunk}",
                f"give --chunk {sequences} or more",
            )
        if sequences < 1:
            raise BuildError(f"--sequences is {sequences}", "give 1 or more")

    def _check_weights(self) -> None:
        if self.model in KNOWN_MODELS:
            if self.random or self.config is not None:
                raise BuildError(
                    f"{self.model} has its own weights", f"leave the rest out: kern build {self.model} -o DIR"
                )
        elif self.model not in FAMILIES:
            raise BuildError(f"unknown model {self.model!r}", f"give one of: {', '.join((*FAMILIES, *KNOWN_MODELS))}")
        elif self.random and self.checkpoint is not None:
            raise BuildError("--random and --checkpoint are both given", "give one of them")
        elif not self.random and self.checkpoint is None:
            raise BuildError(f"{self.model} needs weights", "give --checkpoint PATH, or --random with --config")
        elif self.random and self.config is None:
            raise BuildError("random weights need sizes", "give --config with known sizes, such as tiny")
        elif not self.random and self.config is not None:
            raise BuildError("a checkpoint has its own config", "leave --config out")

    def check_chunk(self, config: TransformerConfig, round_rows: int | None) -> None:
        """Raises BuildError for a chunk that is too large for the model, or too small for a round of its draft."""
        rows = (round_rows or 0) * (self.sequences or 1)
        if rows > self.chunk:
            raise BuildError(
                f"a round of this draft has {rows} tokens, and --chunk allows {self.chunk}",
                f"give --chunk {rows} or more",
            )
        if self.chunk > max(config.max_positions, Limits().chunk):
            raise BuildError(
                f"--chunk is {self.chunk}, and the model has {config.max_positions} positions",
                f"give --chunk {config.max_positions} or less",
            )
