"""kern and vLLM on one card in one run: the same shape, prompt ids and number of tokens, alternately.

    python benchmarks/vs_vllm.py ARTIFACT CONFIG_DIR [--tokens 256] [--prompts 16,709] [--rounds 5]

ARTIFACT is a folder built by `kern build qwen3 --random --config qwen3-4b --target sm_90a`; CONFIG_DIR holds the
config.json of the same shape, which vLLM fills with its own random weights. Batch 1, greedy, vLLM's defaults (graphs
and torch.compile on), once for each attention backend. Each engine has its own process for the whole run, so that
caches are warm; they take turns, so that a change of the card's clocks affects all of them.

First token: the time of a request for one token. Decode: the time of a request for 1 + N tokens minus that, divided by
N. Both as the caller sees them, the median over the rounds after one that is not counted. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from about import about

BACKENDS = ("TRITON_ATTN", "FLASH_ATTN")
VLLM_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

Request = Callable[[Sequence[int], int], int]
"""Prompt ids and a number of tokens → the number generated."""
Task = Callable[[Request, Sequence[int], int], Any]
"""A request with its arguments → its result."""


def kern_engine(artifact: str) -> Request:
    """Requests to kern."""
    import kern
    from kern.engine import Generator
    from kern.text import Tokenizer

    executable = kern.load(artifact, device="cuda", capacity=2048)
    generator = Generator(executable, Tokenizer.load(artifact))

    def request(ids: Sequence[int], tokens: int) -> int:
        return sum(1 for _ in generator.generate(ids, max_tokens=tokens, ignore_stop=True))

    return request


def vllm_engine(config: str, backend: str, **options: Any) -> Request:
    """Requests to vLLM; `options` are further ones of the engine."""
    from vllm import LLM, SamplingParams
    from vllm.config import AttentionConfig

    llm = LLM(
        model=config,
        load_format="dummy",
        skip_tokenizer_init=True,
        attention_config=AttentionConfig(backend=backend),
        max_model_len=2048,
        gpu_memory_utilization=0.25,
        enable_prefix_caching=False,
        max_num_seqs=1,
        **options,
    )

    def request(ids: Sequence[int], tokens: int) -> int:
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        (result,) = llm.generate({"prompt_token_ids": list(ids)}, sampling, use_tqdm=False)
        return len(result.outputs[0].token_ids)

    return request


def seconds(request: Request, ids: Sequence[int], tokens: int) -> float:
    """The time of one request."""
    begun = time.perf_counter()
    count = request(ids, tokens)
    taken = time.perf_counter() - begun
    if count != tokens:
        raise SystemExit(f"{count} tokens in place of {tokens}")
    return taken


TASKS: Mapping[str, Task] = {"seconds": seconds}
"""What an engine can be asked to do, by name."""


def serve(start: Callable[[], Request], tasks: Mapping[str, Task] = TASKS) -> None:
    """Start an engine and do the tasks on stdin, one JSON line each: the task, prompt ids, number of tokens."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print what they like
    request = start()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        task, ids, tokens = json.loads(line)
        print(json.dumps(tasks[task](request, ids, tokens)), file=answers, flush=True)


class Engine:
    """An engine's process; `script` is started with `--serve` and the arguments."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path, script: str = __file__) -> None:
        self.name = name
        environment = {**os.environ, **VLLM_ENVIRONMENT}
        self._process = subprocess.Popen(
            [sys.executable, script, "--serve", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env=environment,
        )

    def wait(self) -> bool:
        """Whether it has started."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip() == "ready"

    def ask(self, task: str, ids: Sequence[int], tokens: int) -> Any:
        """The answer to a task over one request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([task, list(ids), tokens]), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def prompt_ids(length: int) -> list[int]:
    """Random ids, the same for all engines."""
    generator = random.Random(length)
    return [generator.randrange(1000, 150_000) for _ in range(length)]


def measure(engines: Sequence[Engine], prompt: int, tokens: int, rounds: int) -> dict[str, dict[str, Any]]:
    """First-token and decode times of each engine, in milliseconds."""
    ids = prompt_ids(prompt)
    first: dict[str, list[float]] = {engine.name: [] for engine in engines}
    decode: dict[str, list[float]] = {engine.name: [] for engine in engines}
    for _ in range(1 + rounds):
        for engine in engines:
            one = engine.ask("seconds", ids, 1)
            first[engine.name].append(one * 1e3)
            decode[engine.name].append((engine.ask("seconds", ids, 1 + tokens) - one) / tokens * 1e3)
    return {
        engine.name: {
            "first_token_ms": statistics.median(first[engine.name][1:]),
            "decode_ms_per_token": statistics.median(decode[engine.name][1:]),
            "first_token_ms_all": first[engine.name][1:],
            "decode_ms_per_token_all": decode[engine.name][1:],
        }
        for engine in engines
    }


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, with kern's ratio to the faster vLLM backend."""
    options.logs.mkdir(parents=True, exist_ok=True)
    started: list[Engine] = []
    engines: list[Engine] = []
    try:
        # One after another: vLLM counts memory that others allocate meanwhile as its own when it sizes its cache.
        for name, arguments in (
            ("kern", ["kern", options.artifact]),
            *((f"vllm {backend}", [backend, options.config]) for backend in BACKENDS),
        ):
            started.append(Engine(name, arguments, options.logs / f"{name.replace(' ', '-')}.log"))
            if started[-1].wait():
                engines.append(started[-1])
            elif name == "kern":
                raise SystemExit(f"kern did not come up: see {options.logs}")
        results = {n: measure(engines, n, options.tokens, options.rounds) for n in options.prompts}
    finally:
        for engine in started:
            engine.stop()
    ratios = {}
    for prompt, found in results.items():
        for what in ("first_token_ms", "decode_ms_per_token"):
            others = [found[engine.name][what] for engine in engines if engine.name != "kern"]
            ratios[f"prompt {prompt}: {what}"] = min(others) / found["kern"][what] if others else None
    return {
        **about(["python", *sys.argv]),
        "absent": [engine.name for engine in started if engine not in engines],
        "tokens": options.tokens,
        "rounds": options.rounds,
        "results": results,
        "times_as_fast_as_the_faster_vllm": ratios,
    }


def main() -> None:
    """Measure and print, or serve one engine."""
    if sys.argv[1:2] == ["--serve"]:
        kind, argument = sys.argv[2:4]
        serve(partial(kern_engine, argument) if kind == "kern" else partial(vllm_engine, argument, kind))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact")
    parser.add_argument("config")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompts", type=lambda text: [int(n) for n in text.split(",")], default=[16, 709])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--logs", type=Path, default=Path("build/vs_vllm"))
    print(json.dumps(compare(parser.parse_args()), indent=1))


if __name__ == "__main__":
    main()
