"""Which figure of a document is which number of a result: what tests/test_figures.py holds them to."""

from __future__ import annotations

from typing import Final, NamedTuple


class Quote(NamedTuple):
    """Text of a document with `{}` for each figure, a result's name, and where in it the numbers are.

    A place is keys joined by `/`. After ` *` stands what the number is multiplied by: ` *100` for a share in percent.
    """

    document: str
    text: str
    result: str
    places: tuple[str, ...]


README, SPECULATION = "README.md", "docs/speculation.md"
FROM_VLLM, TRAINING, CARD = "docs/kernels-from-vllm.md", "docs/train-a-draft.md", "assets/smollm2-draft/README.md"

SHARES = tuple(f"bench/spec/acceptance/{place} *100" for place in range(7))
ROUNDS_TEXT = """rounds {} ms/round ({} x a decode step; p10 {}, p90 {}, {} rounds)
tokens {} per round ({} tokens/s, {} x plain decoding)
accepted {}%, {}%, {}%, {}%, {}%, {}%, {}% of the rounds"""
ROUNDS_PLACES = tuple(
    f"bench/spec/{key}"
    for key in (
        *("ms_per_round", "round_per_step", "p10", "p90", "rounds"),
        *("tokens_per_round", "tokens_per_second", "speedup"),
    )
)
DECODE_TEXT = "decode {} ms/token ({} tokens/s; p10 {}, p90 {}, {} steps)"
PREFILL_TEXT = """prefill {} ms for 16 tokens ({} tokens/s)
prefill {} ms for 128 tokens ({} tokens/s)
prefill {} ms for 512 tokens ({} tokens/s)
prefill {} ms for 2,048 tokens ({} tokens/s)"""


def decode(bench: str) -> tuple[str, ...]:
    return tuple(f"{bench}/decode/{key}" for key in ("ms_per_token", "ms_per_token ^1000", "p10", "p90", "steps"))


def prefill(bench: str) -> tuple[str, ...]:
    sizes = enumerate((16, 128, 512, 2048))
    return tuple(f"{bench}/prefill/{place}/ms{rate}" for place, n in sizes for rate in ("", f" ^{n * 1000}"))


def in_turns(prompt: int, key: str) -> tuple[str, ...]:
    return tuple(f"results/{prompt}/{engine}/{key}" for engine in ("kern", "vllm TRITON_ATTN", "vllm FLASH_ATTN"))


def recorded(engine: str) -> tuple[str, ...]:
    places = "16/{}/decode_ms_per_token", "709/{}/decode_ms_per_token", "709/{}/first_token_ms"
    return tuple(f"results/{place.format(engine)}" for place in places)


def step_part(name: str, *engines: str) -> tuple[str, ...]:
    return tuple(f"kernels/16/decode step/parts/{name}/{engine}/us" for engine in engines)


def runs(run: str, *keys: str) -> tuple[str, ...]:
    return tuple(f"{run}/{key}/{place}" for key in keys for place in range(3))


_THREE = "{}, {}, {}"
NEW_PROCESS = "a process that loads and gives a first token after 709 ids, five runs"
_TIMES = "decode_ms", "round_ms", "round_per_step"
_ALL = "kern on vllm's kernels", "vllm without torch.compile", "vllm"

QUOTES: Final = (
    Quote(README, "| decode, prompt of 16 | **{} ms/token** | {} | {} |", "h200-qwen3-4b-vs-vllm",
          in_turns(16, "decode_ms_per_token")),
    Quote(README, "| decode, prompt of 709 | **{} ms/token** | {} | {} |", "h200-qwen3-4b-vs-vllm",
          in_turns(709, "decode_ms_per_token")),
    Quote(README, "| first token, prompt of 709 | **{} ms** | {} | {} |", "h200-qwen3-4b-vs-vllm",
          in_turns(709, "first_token_ms")),
    Quote(README, f"{DECODE_TEXT}\n…\nmemory {{}} MB per step: {{}}% of the {{}} GB/s", "host-smollm2",
          (*decode("bench"), "bench/bytes_per_step *1e-6", "bench/bandwidth_share *100",
           "bench/read_bandwidth *1e-9")),
    Quote(README, "and {} tokens per round, speculation takes it from {} to {} tokens per second", "h200-smollm2-spec",
          ("fifty_prompts/tokens_per_round/all", "fifty_prompts/plain/tokens_per_s",
           "fifty_prompts/device/tokens_per_s")),
    Quote(README, "decoding reads its bytes at {} to {} % of the rate", "h200-qwen3-4b-speculation",
          ("read rate/bandwidth_share_at_5ed4435 min *100", "read rate/bandwidth_share max *100")),
    Quote(README, "the 8 GB of weights load in {} to {} s", "h200-qwen3-4b",
          (f"{NEW_PROCESS}/load_s min",
           f"{NEW_PROCESS}/load_s max")),
    Quote(README, "SmolLM2 decodes at {} ms per token on an H200", "h200-smollm2-spec",
          ("bench/decode/ms_per_token",)),
    Quote(README, "SmolLM2 decodes at {} ms per token, {} % of the read rate", "host-smollm2",
          ("bench/decode/ms_per_token", "bench/bandwidth_share *100")),
    Quote(README, "and in another run at {} ms, {} %; there a prefill of {} tokens takes {} × as long",
          "host-smollm2-vs-torch",
          ("decode_ms_per_token", "bandwidth_share *100", "prefill_tokens", "prefill_ratio")),
    Quote(SPECULATION, DECODE_TEXT, "host-smollm2-spec", decode("bench")),
    Quote(SPECULATION, ROUNDS_TEXT, "host-smollm2-spec", ROUNDS_PLACES + SHARES),
    Quote(SPECULATION, "{} tokens per round over the first 32 tokens, {} over the first 96", "host-smollm2-spec",
          ("fifty_prompts/tokens_per_round_of_first_32/all", "fifty_prompts/tokens_per_round_of_first_96/all")),
    Quote(README, "speculation takes decoding from {} to {} tokens per second", "host-smollm2-spec",
          ("fifty_prompts/plain_tokens_per_s", "fifty_prompts/speculation_tokens_per_s")),
    Quote(SPECULATION, "takes decoding from {} to {} tokens per second", "host-smollm2-spec",
          ("fifty_prompts/plain_tokens_per_s", "fifty_prompts/speculation_tokens_per_s")),
    Quote(SPECULATION, "Of these fifty texts of 96 tokens, {} are the same as with plain decoding to the last token, "
          "and {} differ from it after a near-tie", "host-smollm2-spec",
          ("fifty_prompts/same_as_plain", "fifty_prompts/parted_at_near_ties")),
    Quote(SPECULATION, "The two logits differed by {} at the median and {} at most", "host-smollm2-spec",
          ("fifty_prompts/median_margin_at_parting", "fifty_prompts/widest_margin_at_parting")),
    Quote(SPECULATION, "| 9ce2f18, rounds on the prefill's kernels | {} | {} | {} | |", "h200-qwen3-4b-speculation",
          tuple(f"runs/0/{key}/0" for key in _TIMES)),
    Quote(SPECULATION, f"| db09a97, their own kernels | {_THREE} | {_THREE} | {_THREE} | |",
          "h200-qwen3-4b-speculation", runs("runs/1", *_TIMES)),
    Quote(SPECULATION, f"| 39cebd6 | {_THREE} | {_THREE} | {_THREE} | {_THREE} |", "h200-qwen3-4b-speculation",
          runs("runs/2", *_TIMES, "idle_us_per_round")),
    Quote(SPECULATION, f"| 1dd6e67, a faster chain | {_THREE} | {_THREE} | {_THREE} | {_THREE} |",
          "h200-qwen3-4b-speculation", runs("runs/3", *_TIMES, "idle_us_per_round")),
    Quote(SPECULATION, f"| 0273c72, splits, ring and first product | {_THREE} | {_THREE} | {_THREE} | {_THREE} |",
          "h200-qwen3-4b-speculation", runs("in turns on one card/2", *_TIMES, "idle_us_per_round")),
    Quote(SPECULATION, "1dd6e67 takes {} and {} ms and its successor 5ed4435, which splits attention into eight parts "
          "for a round, {} and {}", "h200-qwen3-4b-speculation",
          tuple(f"in turns on one card/0/{commit}/{key}" for commit in ("1dd6e67", "5ed4435") for key in _TIMES[:2])),
    Quote(SPECULATION, "A round that gives {} tokens takes as long as the steps that it replaces. By its shapes a "
          "round reads {} GB where a step reads {}: by bytes alone it would cost {} steps.",
          "h200-qwen3-4b-speculation",
          ("derived, not measured/break_even_tokens_per_round", "derived, not measured/bytes_read_per_round_gb",
           "read rate/bytes_per_step *1e-9", "derived, not measured/bytes_per_round_by_bytes_per_step")),
    Quote(SPECULATION, "At {} tokens per round, {} ms are {} tokens/s against {} with plain steps, {} times as many.",
          "h200-qwen3-4b-speculation",
          ("derived, not measured/tokens_per_round", "in turns on one card/2/round_ms/2",
           "derived, not measured/tokens_per_s", "derived, not measured/plain_tokens_per_s",
           "derived, not measured/speedup")),
    Quote(SPECULATION, "| plain decoding | {} | |", "h200-smollm2-spec", ("fifty_prompts/plain/tokens_per_s",)),
    Quote(SPECULATION, "| rounds driven by the host | {} | {} |", "h200-smollm2-spec",
          ("fifty_prompts/host/tokens_per_s", "fifty_prompts/tokens_per_round/all")),
    Quote(SPECULATION, "| rounds driven by the device | {} | {} |", "h200-smollm2-spec",
          ("fifty_prompts/device/tokens_per_s", "fifty_prompts/tokens_per_round/all")),
    Quote(SPECULATION, "{} of the texts are the same as with plain decoding to the last token, and {} differ from it "
          "after a near-tie of at most {}, where the build's logits differ from float32 by {} to {}.",
          "h200-smollm2-spec",
          ("equality/same_as_plain", "equality/parted_at_near_ties", "equality/margins_at_parting max",
           "equality/logits_off_from_float32_there min", "equality/logits_off_from_float32_there max")),
    Quote(SPECULATION, "`kern bench --spec` measures a round at {} ms there, {} steps.", "h200-smollm2-spec",
          ("bench/spec/ms_per_round", "bench/spec/round_per_step")),
    Quote(SPECULATION, "take {} ms for one row", "h200-kernels", ("sweep/0/products *1e-3",)),
    Quote(SPECULATION, "seven steps take {} µs; {} if every part may stay in the cache, and {} if none may",
          "h200-chain", ("chains/2/us", "chains/0/us", "chains/5/us")),
    Quote(SPECULATION, "| as built | {} |", "host-smollm2-ablations", ("tokens_per_round/as built",)),
    *(Quote(SPECULATION, f"| {fault} | {{}} |", "host-smollm2-ablations", (f"tokens_per_round/{fault}",))
      for fault in ("taps one layer early", "the block attends causally", "taps one layer late",
                    "the block two positions early", "no Markov head", "features without their norm")),
    Quote(FROM_VLLM, "The requests take {} times as long ({} in another pair of runs), the process as a whole {} s in "
          "place of {}", "h200-recording",
          ("recording/1/times", "recording/0/times", "process_s/recorded", "process_s/unrecorded")),
    Quote(FROM_VLLM, '"seconds": {}}\n$ kern capture', "h200-recording", ("recording/1/unrecorded/requests_s",)),
    Quote(FROM_VLLM, '"seconds": {}}\nkern: pid-738', "h200-recording", ("recording/1/recorded/requests_s",)),
    Quote(FROM_VLLM, "{} launches of {} kernels, 100.00% with their module; {} modules", "h200-recording",
          tuple(f"launches/vllm TRITON_ATTN eager/{key}" for key in ("launches", "kernels", "modules"))),
    Quote(FROM_VLLM, "The folder has 156 MB, {} of them the launches", "h200-recording",
          ("launches/vllm TRITON_ATTN eager/bytes_of_launches *1e-6",)),
    Quote(FROM_VLLM, f"{DECODE_TEXT}\n{PREFILL_TEXT}\nmemory", "h200-recording",
          decode("bench/on recorded kernels") + prefill("bench/on recorded kernels")),
    Quote(FROM_VLLM, "idle {} µs between two decode steps", "h200-recording",
          ("bench/on recorded kernels/idle_us_per_step",)),
    Quote(FROM_VLLM, "({} to {} here) and the difference of the logits (up to {})", "h200-recording",
          ("agreement with our own kernels/margins_at_parting/0", "agreement with our own kernels/margins_at_parting/1",
           "agreement with our own kernels/logits_apart")),
    Quote(FROM_VLLM, f"{DECODE_TEXT}\n{PREFILL_TEXT}\n```", "h200-recording",
          decode("bench/add_rms_norm_bf16 replaced") + prefill("bench/add_rms_norm_bf16 replaced")),
    Quote(FROM_VLLM, "{} ms before, {} after", "h200-recording",
          ("bench/on recorded kernels/decode/ms_per_token", "bench/add_rms_norm_bf16 replaced/decode/ms_per_token")),
    Quote(FROM_VLLM, "| kern on vLLM's kernels | {} | {} | {} |", "h200-recorded-vs-vllm",
          recorded("kern on vllm's kernels")),
    Quote(FROM_VLLM, "| kern on its own kernels | {} | {} | {} |", "h200-recorded-vs-vllm", recorded("kern")),
    Quote(FROM_VLLM, "| vLLM, TRITON_ATTN, as it runs by default | {} | {} | {} |", "h200-recorded-vs-vllm",
          recorded("vllm")),
    Quote(FROM_VLLM, "the kernels that were recorded | {} | {} | {} |", "h200-recorded-vs-vllm",
          recorded("vllm without torch.compile")),
    Quote(FROM_VLLM, "| vLLM, eager: what was recorded | {} | {} | {} |", "h200-recorded-vs-vllm",
          recorded("vllm eager")),
    *(Quote(FROM_VLLM, f"| {part} | {{}} | {{}} | {{}}", "h200-recorded-vs-vllm", step_part(part, *_ALL))
      for part in ("add and norm", "cache write", "attention", "reduction of attention", "products")),
    *(Quote(FROM_VLLM, f"| {part} | {{}} | {{}} | fused |", "h200-recorded-vs-vllm", step_part(part, *_ALL[:2]))
      for part in ("rotation", "activation")),
    Quote(FROM_VLLM, "| fused by torch.compile | | | {} |", "h200-recorded-vs-vllm",
          step_part("fused by torch.compile", "vllm")),
    Quote(TRAINING, "`generate --minutes 2.5` made {} and {} texts, {} s for each 1,024; `train --minutes 6` did {} "
          "steps of {} ms in {} s", "h200-draft-training",
          ("generation/texts/0", "generation/texts/1", "generation/s_per_1024_texts", "training/steps",
           "training/ms_per_step", "training/s")),
    Quote(TRAINING, "{} tokens per round over the first 32 tokens and {} over the first 96 on the host",
          "host-smollm2-spec",
          ("fifty_prompts/tokens_per_round_of_first_32/all", "fifty_prompts/tokens_per_round_of_first_96/all")),
    Quote(TRAINING, "and {} over up to 256 on a GPU", "h200-smollm2-spec", ("fifty_prompts/tokens_per_round/all",)),
    Quote(TRAINING, "step 3400 95% {} s loss {} accept_k {} {} {} {} {} {} {} tau {} on 16 held out",
          "h200-draft-training",
          ("step_3400/s", "step_3400/loss", *(f"step_3400/accept_k/{place}" for place in range(7)), "step_3400/tau")),
    Quote("docs/python-api.md",
          "For a program of {} launches on an H200, that took {} ms and {} KiB of the host's memory; "
          "a graph of them took {} ms, {} KiB and another {} KiB of the GPU's memory", "h200-launch-lists",
          ("launches/decode", "lists/decode/ms", "lists/decode/host_kib", "graphs/decode/ms", "graphs/decode/host_kib",
           "graphs/decode/device_kib")),
    Quote(CARD, "{} of 4,000 steps of 32 texts with 64 blocks each, in {} s", "h200-draft-training",
          ("training/steps", "training/s")),
)  # fmt: skip
