"""Generate with transformers so that a recorder sees every kernel: five prompts of several lengths, one by one.

    kern capture -o DUMP -- python record_transformers.py MODEL_DIR [--prompts 1,16,34,85,175]

MODEL_DIR is a Hugging Face folder; if it holds a config.json and no weights, the weights are random. bf16, attention
through torch's scaled_dot_product_attention. Prints JSON: the output ids of each prompt and the seconds that it took.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def main() -> None:
    """Load, generate, print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompts", default="1,16,34,85,175", help="lengths in tokens")
    parser.add_argument("--tokens", type=int, default=4, help="tokens to generate for each")
    options = parser.parse_args()

    how = {"dtype": torch.bfloat16, "attn_implementation": "sdpa"}
    with torch.device("cuda"):
        torch.manual_seed(0)
        if any(options.model.glob("*.safetensors")):
            model = AutoModelForCausalLM.from_pretrained(options.model, **how)
        else:
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(options.model), **how)
    model.eval()
    outputs, begun = {}, time.perf_counter()
    for length in map(int, options.prompts.split(",")):
        generator = random.Random(length)
        ids = [generator.randrange(model.config.vocab_size) for _ in range(length)]
        prompt = torch.tensor([ids], device="cuda")
        generated = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=options.tokens,
            min_new_tokens=options.tokens,
            do_sample=False,
            pad_token_id=0,
        )
        outputs[length] = generated[0, length:].tolist()
    print(json.dumps({"output_ids": outputs, "seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()
