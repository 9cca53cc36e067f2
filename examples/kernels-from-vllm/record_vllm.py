"""Generate with vLLM so that a recorder sees every kernel: five prompts of different lengths, one after another.

    kern capture -o DUMP -- python record_vllm.py MODEL_DIR [--backend TRITON_ATTN] [--prompts 1,16,34,85,175]

MODEL_DIR is a Hugging Face folder; if it holds a config.json and no weights, vLLM uses random ones.
CUDA graphs are off, so that each kernel is launched by its own call, and the engine runs in this process; with
--graphs vLLM runs as it does by default. Prints JSON: the output ids of each prompt and the seconds that the requests
took.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")  # it is compiled at first use, and greedy needs none


def main() -> None:
    """Start the engine, send the prompts, print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--backend", default="TRITON_ATTN", help="attention backend, as vLLM names it")
    parser.add_argument("--prompts", default="1,16,34,85,175", help="lengths in tokens")
    parser.add_argument("--tokens", type=int, default=4, help="tokens to generate for each")
    parser.add_argument("--graphs", action="store_true", help="leave CUDA graphs and torch.compile on")
    options = parser.parse_args()

    stdout = os.dup(1)
    os.dup2(2, 1)  # vLLM logs to stdout too
    from vllm import LLM, SamplingParams
    from vllm.config import AttentionConfig

    weights = any(options.model.glob("*.safetensors"))
    llm = LLM(
        model=str(options.model),
        load_format="auto" if weights else "dummy",
        skip_tokenizer_init=True,
        attention_config=AttentionConfig(backend=options.backend),
        enforce_eager=not options.graphs,
        max_model_len=4096,
        gpu_memory_utilization=0.3,
        enable_prefix_caching=False,
        max_num_seqs=1,
    )
    vocabulary = llm.llm_engine.model_config.get_vocab_size()
    sampling = SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True, detokenize=False)
    outputs, begun = {}, time.perf_counter()
    for length in map(int, options.prompts.split(",")):
        generator = random.Random(length)
        ids = [generator.randrange(vocabulary) for _ in range(length)]
        (result,) = llm.generate({"prompt_token_ids": ids}, sampling, use_tqdm=False)
        outputs[length] = list(result.outputs[0].token_ids)
    seconds = time.perf_counter() - begun
    with os.fdopen(stdout, "w") as answers:
        json.dump({"backend": options.backend, "output_ids": outputs, "seconds": seconds}, answers)
        print(file=answers)


if __name__ == "__main__":
    sys.exit(main())
