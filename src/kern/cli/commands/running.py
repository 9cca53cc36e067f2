"""`kern run`, `chat`, `score`, `bench` and `call`: the commands that run an artifact's programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kern.cli.options import Artifact, Capacity, Chunk, Device, Eager, Json, Quiet, Spec, Stop, Tune, Weights


def run(
    path: Artifact,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The prompt; `-` reads stdin, without its final newline.")
    ] = None,
    prompt_ids: Annotated[str | None, typer.Option(metavar="1,2,3", help="The prompt as token ids.")] = None,
    chat: Annotated[
        bool, typer.Option("--chat", metavar="", help="Apply the model's chat template to the prompt.")
    ] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system message; only with --chat.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of tokens to generate.")] = 128,
    ignore_stop: Annotated[
        bool, typer.Option("--ignore-stop", metavar="", help="Continue after a stop token.")
    ] = False,
    stop: Stop = None,
    chunk: Chunk = None,
    capacity: Capacity = 4096,
    device: Device = "auto",
    weights: Weights = None,
    eager: Eager = False,
    check: Annotated[
        bool, typer.Option("--check", metavar="", help="Wait after each launch, and name the one that fails.")
    ] = False,
    tune: Tune = False,
    spec: Spec = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Generate text after a prompt with greedy decoding, and print it as it comes.

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


def chat(
    path: Artifact,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system message.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of tokens per answer.")] = 1024,
    stop: Stop = None,
    capacity: Capacity = 4096,
    device: Device = "auto",
    spec: Spec = False,
    quiet: Quiet = False,
) -> None:
    """Chat with a model, one line per turn, on a terminal or through a pipe.

    Ctrl-C ends an answer; at the prompt, Ctrl-C or Ctrl-D ends the conversation. State that a turn shares with earlier
    ones is not computed again.

    Example: `kern chat build/smollm2`
    """
    from kern.cli.chat import chat
    from kern.cli.loading import LoadOptions

    chat(path, LoadOptions(device, capacity, quiet=quiet), system, max_tokens=max_tokens, stop=stop or (), spec=spec)


def score(
    path: Artifact,
    text: Annotated[str, typer.Option(metavar="FILE", help="A text file; `-` reads stdin.")],
    capacity: Capacity = 4096,
    device: Device = "auto",
    weights: Weights = None,
    json: Json = False,
) -> None:
    """Measure how likely the model finds a text: a number that distinguishes a correct build from a broken one.

    Example: `kern score build/smollm2 --text LICENSE`
    """
    from kern.cli.loading import LoadOptions
    from kern.cli.run import score_text

    score_text(path, text, LoadOptions(device, capacity, weights), as_json=json)


def bench(
    path: Artifact,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Number of decode steps to time.")] = 256,
    chunk: Chunk = None,
    capacity: Capacity = 4096,
    device: Device = "auto",
    weights: Weights = None,
    eager: Eager = False,
    tune: Tune = False,
    spec: Spec = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also time each launch of a decode step: a table by kernel, and a Chrome trace in FILE. "
            "Each launch is timed alone, so the sum differs from the time of the step.",
        ),
    ] = None,
    decode_only: Annotated[bool, typer.Option("--decode-only", metavar="", help="Do not time prefill.")] = False,
    sequences: Annotated[
        str | None,
        typer.Option(
            metavar="1,8,16", help="Time only steps of each of these numbers of sequences at once, as a table."
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens of context at the steps of --sequences: 256 by default."),
    ] = None,
    json: Json = False,
) -> None:
    """Time decoding and prefill, and compare decoding with the device's read bandwidth.

    Decoding follows a prompt of 16 random ids. With `--spec`, rounds of speculation are timed too, and compared with
    plain steps. With `--sequences`, steps of many sequences are timed instead: in a graph alone, and as the caller of a
    batch sees them.

    Example: `kern bench build/smollm2`
    """
    from kern.cli.bench import bench
    from kern.cli.bench_sequences import bench_sequences, sequence_counts
    from kern.cli.errors import UsageError
    from kern.cli.loading import LoadOptions

    options = LoadOptions(device, capacity, weights, tune=tune)
    if sequences is not None:
        if spec or profile is not None or decode_only:
            raise UsageError(
                "--sequences times steps of many sequences only", "leave --spec, --profile and --decode-only out"
            )
        counts = sequence_counts(sequences)
        bench_sequences(
            path, options, counts, context=context or 256, steps=steps, chunk=chunk, eager=eager, as_json=json
        )
        return
    if context is not None:
        raise UsageError("--context needs --sequences", "add --sequences 1,8, or leave --context out")
    bench(
        path,
        options,
        steps=steps,
        chunk=chunk,
        eager=eager,
        spec=spec,
        trace=profile,
        decode_only=decode_only,
        as_json=json,
    )


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
        int,
        typer.Option(
            min=1, max=10**6, metavar="N", help="Runs, one after another; states and carries are kept between them."
        ),
    ] = 1,
    timed: Annotated[
        bool,
        typer.Option("--time", metavar="", help="Time the runs, then each launch separately in as many further runs."),
    ] = False,
    capacity: Capacity = 4096,
    device: Device = "auto",
    weights: Weights = None,
    check: Annotated[
        bool, typer.Option("--check", metavar="", help="Wait after each launch, and name the one that fails.")
    ] = False,
    json: Json = False,
) -> None:
    """Run one program of any artifact, with its inputs and outputs in .npy files.

    States and carries are zero at first. A file has the bits of bf16 values, as numpy.save writes an ml_dtypes array
    or as uint16, and those of fp8e4m3 values as uint8. Outputs are written the same way.

    Example: `kern call halve run --set n=4 --in x=x.npy --out y=y.npy`
    """
    from kern.cli.call import CallOptions, call
    from kern.cli.loading import LoadOptions

    given = CallOptions(program, sets or (), inputs or (), outputs or (), repeat, timed)
    call(path, LoadOptions(device, capacity, weights, check), given, as_json=json)
