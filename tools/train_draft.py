"""Trains a DSpark draft for a model, on text that the model writes itself: first `generate`, then `train`.

    python tools/train_draft.py generate SmolLM2-135M-Instruct.Q4_1.gguf -o corpus.npz
    python tools/train_draft.py train SmolLM2-135M-Instruct.Q4_1.gguf corpus.npz -o draft

Needs torch and safetensors, and a GPU to be done in minutes. Each part reads and writes files, and ends by itself
before its `--minutes` are over. See docs/train-a-draft.md.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    import torch
    from draft_training.acceptance import measure
    from draft_training.card import Run, model_card, total
    from draft_training.corpus import Corpus, Text, load_corpus
    from draft_training.draft import Draft, DraftError, draft_config
    from draft_training.export import MAX_BYTES, config_json, rounded, save_draft, stored_bytes
    from draft_training.generation import Request, complete
    from draft_training.prompts import held_out_requests, training_requests
    from draft_training.target import Target
    from draft_training.training import Schedule, Step, train

    from kern.checkpoints.checkpoint import Checkpoint
    from kern.checkpoints.gguf_checkpoint import GgufCheckpoint
    from kern.checkpoints.hf_checkpoint import HuggingFaceCheckpoint
    from kern.manifest.errors import KernError
    from kern.models.speculation.config import fitted, from_dspark
    from kern.models.text_files import text_settings
    from kern.text.tokenizer import Tokenizer
except ModuleNotFoundError as error:
    print(f"error: {error.name} is not installed; pip install torch safetensors -e '.[gguf]'", file=sys.stderr)
    sys.exit(2)

MEASURING_SHARE = 0.1
"""Of training's minutes, kept for measuring."""
_SEEDS = 2**32
"""A generator's seed has 64 bits, and each generated batch has its own, derived from this."""


class UsageError(KernError, code="usage", exit_code=2):
    """Invalid options."""


def generate(options: argparse.Namespace) -> None:
    """Complete prompts batch by batch; the held-out ones come first, so that a short run has them too."""
    begin, checkpoint = time.monotonic(), _open(options.checkpoint)
    _expect_new(options.output)
    tokenizer = _tokenizer(checkpoint)
    held_out = held_out_requests(tokenizer, options.held_out, options.seed)
    training = training_requests(tokenizer, options.texts, options.seed)
    _check_room((*held_out, *training), options.tokens, checkpoint.config.max_positions)
    target, stops = Target(checkpoint, _device()), checkpoint.text.stop_ids
    texts, pace = _completed(target, held_out, options, stops, 0, math.inf, 0.0)
    trained, _ = _completed(target, training, options, stops, len(texts), begin + 60 * options.minutes, pace)
    if not trained:
        raise UsageError(
            f"no text to train on would have been made within {options.minutes} minutes",
            "give more, or a smaller --batch, or fewer --held-out texts, which come first",
        )
    recipe = {"generation seed": options.seed, "at most": f"{options.tokens} tokens each"}
    Corpus(tuple(trained), tuple(texts), recipe).save(options.output)
    count = sum(len(text.ids) for text in trained)
    print(f"{options.output}: {len(trained):,} texts, {count:,} tokens; {len(texts):,} held out")


def _completed(
    target: Target,
    requests: list[Request],
    options: argparse.Namespace,
    stops: tuple[int, ...],
    salt: int,
    until: float,
    pace: float,
) -> tuple[list[Text], float]:
    """Completions in batches, none begun that would likely end after `until`; and the most seconds that a text took.

    `pace` is that number before.
    """
    texts: list[Text] = []
    for start in range(0, len(requests), options.batch):
        batch, seed = requests[start : start + options.batch], options.seed * 1_000_003 + salt + start
        begin = time.monotonic()
        if begin + pace * len(batch) > until:
            break
        texts += complete(target, batch, options.tokens, stops, seed)
        seconds = time.monotonic() - begin
        pace = max(pace, seconds / len(batch))
        print(f"{len(texts):,} of {len(requests):,} texts, {seconds:.1f} s the last {len(batch):,}", flush=True)
    return texts, pace


def train_draft(options: argparse.Namespace) -> None:
    """Train, round to bf16, measure what is stored, and write the folder."""
    begin, corpus = time.monotonic(), load_corpus(options.corpus)
    _expect_new(options.output)
    checkpoint, device = _open(options.checkpoint), _device()
    config = draft_config(
        checkpoint.config, layers=options.layers, ffn=options.ffn, taps=_taps(options.taps), block=options.block,
        rank=options.rank, mask=options.mask_id,
    )  # fmt: skip
    if stored_bytes(config) > MAX_BYTES:
        raise DraftError(
            f"such a draft takes {stored_bytes(config):,} bytes, more than {MAX_BYTES:,}",
            "give fewer --layers, or a smaller --ffn or --rank",
        )
    # A draft that cannot be built is refused now rather than after the training.
    fitted(from_dspark(config_json(config)), checkpoint.config)
    _check_corpus(corpus, checkpoint, options.corpus)
    target, draft = Target(checkpoint, device), Draft.random(config, options.seed, device)
    left = 60 * options.minutes * (1 - MEASURING_SHARE) - (time.monotonic() - begin)
    if left <= 0:
        raise UsageError(f"{options.minutes} minutes are over before training begins", "give more")
    schedule = Schedule(options.steps, options.batch, options.anchors, options.learning_rate, left, options.seed)
    watched = corpus.held_out[: options.watched]

    def tell(step: Step) -> None:
        tau = total(measure(target, draft, watched), config.block).tau
        overlap = " ".join(f"{share:.3f}" for share in step.overlap)
        print(
            f"step {step.number} {step.progress:.0%} {step.seconds:.0f} s loss {step.loss:.4f} accept_k {overlap} "
            f"tau {tau:.3f} on {len(watched)} held out",
            flush=True,
        )

    start = time.monotonic()
    steps = train(target, draft, corpus.training, schedule, tell)
    seconds = time.monotonic() - start
    if not all(bool(tensor.isfinite().all()) for tensor in draft.tensors.values()):
        raise DraftError("the draft's weights are not finite after its training", "give a smaller --learning-rate")
    found = measure(target, rounded(draft), corpus.held_out)
    run = Run(
        options.checkpoint.name, _sha256(options.checkpoint), corpus.recipe, len(corpus.training),
        sum(len(text.ids) for text in corpus.training), schedule, steps, seconds, _device_name(device),
        str(torch.__version__),
    )  # fmt: skip
    save_draft(options.output, draft, model_card(config, run, found, len(corpus.held_out)))
    print(f"{options.output}: {total(found, config.block).tau:.3f} tokens per round on held-out prompts, {steps} steps")


def _check_room(requests: Sequence[Request], tokens: int, positions: int) -> None:
    longest = max(request.prompt for request in requests)
    if longest + tokens > positions:
        raise UsageError(
            f"a prompt of {longest} tokens and --tokens {tokens} are more than the model's {positions:,} positions",
            f"give at most {positions - longest}",
        )


def _check_corpus(corpus: Corpus, checkpoint: Checkpoint, path: Path) -> None:
    if not corpus.training or not corpus.held_out:
        raise UsageError(f"{path} has no text to train on, or none held out", "generate it again")
    texts = (*corpus.training, *corpus.held_out)
    if max(max(text.ids) for text in texts) >= checkpoint.config.vocabulary:
        raise UsageError(f"{path} has ids that this model does not have", "generate it with the same checkpoint")


def _open(path: Path) -> Checkpoint:
    return HuggingFaceCheckpoint(path) if path.is_dir() else GgufCheckpoint(path)


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    content = checkpoint.text.tokenizer_json
    return Tokenizer(text_settings(checkpoint.config, checkpoint.text), content.decode() if content else None)


def _expect_new(path: Path) -> None:
    """Raises UsageError where nothing new can be written at `path`: better now than after the work."""
    if os.path.lexists(path):
        raise UsageError(f"{path} is there already", "give another name, or remove it")
    standing = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    try:
        tempfile.TemporaryFile(dir=standing).close()
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {standing}: {error.strerror}", "give another name") from None


def _taps(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--taps {text!r} is not a list of layers", "write them as 1,14,27") from None


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # TF32 keeps the ten bits that bf16 weights need, so that logits are those of bf16 products summed in float32.
    torch.set_float32_matmul_precision("high")
    return torch.device("cuda")


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"


def _sha256(path: Path) -> str | None:
    """The hash of a checkpoint that is one file."""
    if path.is_dir():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _above_zero(kind: type[int] | type[float], most: float = math.inf) -> Any:
    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value <= most or value == math.inf:
            raise ValueError
        return value

    parse.__name__ = "number above 0" + (f" and up to {most:g}" if most < math.inf else "")
    return parse


def _seed(text: str) -> int:
    if not 0 <= int(text) < _SEEDS:
        raise ValueError
    return int(text)


_seed.__name__ = f"number from 0 to {_SEEDS - 1}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    count, number = _above_zero(int), _above_zero(float)
    making = parts.add_parser("generate", help="the target completes prompts", formatter_class=_HELP)
    making.add_argument("--texts", type=count, default=16384, help="completions to train on")
    making.add_argument("--held-out", type=count, default=256, help="greedy completions to measure on")
    making.add_argument("--tokens", type=count, default=256, help="longest completion")
    making.add_argument("--batch", type=count, default=1024, help="texts written at once")
    making.set_defaults(run=generate)
    learning = parts.add_parser("train", help="a draft learns from them", formatter_class=_HELP)
    learning.add_argument("--layers", type=count, default=2, help="of the draft")
    learning.add_argument("--ffn", type=count, default=576, help="width of the draft's MLP")
    learning.add_argument("--rank", type=count, default=32, help="of the Markov tables")
    learning.add_argument("--taps", default="1,14,27", help="target layers whose output the draft reads")
    learning.add_argument("--block", type=count, default=7, help="tokens drafted at once")
    learning.add_argument("--mask-id", type=int, default=16, help="a token that never occurs in text")
    learning.add_argument("--steps", type=count, default=4000, help="at most, where the minutes last")
    learning.add_argument("--batch", type=count, default=32, help="texts per step")
    learning.add_argument("--anchors", type=count, default=64, help="blocks per text and step")
    learning.add_argument("--learning-rate", type=_above_zero(float, 1), default=1e-3, help="at its highest")
    learning.add_argument("--watched", type=count, default=16, help="held-out texts measured while training")
    learning.set_defaults(run=train_draft)
    for part in (making, learning):
        part.add_argument("checkpoint", type=Path, help="the target: a GGUF file or a Hugging Face folder")
        part.add_argument(
            *("-o", "--output"),
            type=Path,
            required=True,
            default=argparse.SUPPRESS,
            help="what to write; must not be there yet",
        )
        part.add_argument("--seed", type=_seed, default=0, help="of all that is random")
        part.add_argument("--minutes", type=number, default=8.0, help="the part ends before they are over")
    learning.add_argument("corpus", type=Path, help="what generate wrote")
    return parser


_HELP = argparse.ArgumentDefaultsHelpFormatter


def main() -> int:
    """Run one part; 0, or the error's exit code."""
    options = _parser().parse_args()
    try:
        options.run(options)
    except KernError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except torch.OutOfMemoryError as error:
        print(
            f"error: the GPU has too little memory: give a smaller --batch or fewer --anchors ({error})",
            file=sys.stderr,
        )
        return 1
    except OSError as error:
        print(f"error: {error.filename or options.output}: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
