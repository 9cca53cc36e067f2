"""The host device against torch in float32, the same weights, in one run: prefill, decode, read bandwidth.

    python benchmarks/host_vs_torch.py build/smollm2 [--tokens 512] > benchmarks/results/NAME.json

Needs torch (a CPU build will do). Prefill leaves the state of all tokens and no logits, on both sides. Runs alternate,
and medians are compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from about import about
from safetensors.torch import load_file

import kern
from kern.bench.steps import benchmark
from kern.engine.generator import Generator
from kern.text.tokenizer import Tokenizer

ROUNDS = 7


class TorchModel:
    """The transformer of an artifact's weights, in float32, written for speed."""

    def __init__(self, folder: Path, heads: int, kv_heads: int, eps: float) -> None:
        self.weights = {name: tensor.float() for name, tensor in load_file(folder / "weights.safetensors").items()}
        own = (name for name in self.weights if name.startswith("layers."))  # those of a draft begin otherwise
        self.layers = sum(name.endswith("qkv_proj") for name in own)
        self.heads, self.kv_heads, self.eps = heads, kv_heads, eps
        self.head_dim = self.weights["layers.0.o_proj"].shape[1] // heads

    @torch.inference_mode()
    def prefill(self, ids: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values of every layer, and nothing that they do not depend on."""
        w, d = self.weights, self.head_dim
        x = w["embedding"][ids]
        cos, sin = w["cos_sin"][: len(ids)].split(d // 2, dim=-1)
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
        cache = []
        for layer in range(self.layers):
            p = f"layers.{layer}."
            y = F.rms_norm(x, x.shape[-1:], w[p + "input_norm"], self.eps)
            qkv = F.linear(y, w[p + "qkv_proj"])
            q, k, v = qkv.split((self.heads * d, self.kv_heads * d, self.kv_heads * d), dim=-1)
            q, k, v = (t.view(len(ids), -1, d).transpose(0, 1) for t in (q, k, v))
            q, k = (t * cos + torch.cat((-t[..., d // 2 :], t[..., : d // 2]), -1) * sin for t in (q, k))
            cache.append((k, v))
            if layer == self.layers - 1:
                break
            attended = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
            x = x + F.linear(attended.transpose(0, 1).reshape(len(ids), -1), w[p + "o_proj"])
            y = F.rms_norm(x, x.shape[-1:], w[p + "post_attention_norm"], self.eps)
            gate, up = F.linear(y, w[p + "gate_up_proj"]).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, w[p + "down_proj"])
        return cache


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--heads", type=int, default=9)
    parser.add_argument("--kv-heads", type=int, default=3)
    options = parser.parse_args()
    ids = np.random.default_rng(0).integers(3, 40000, options.tokens).tolist()
    torch_model = TorchModel(options.folder, options.heads, options.kv_heads, 1e-5)
    with kern.load(options.folder) as executable:
        torch.set_num_threads(getattr(executable.device, "threads", torch.get_num_threads()))
        generator = Generator(executable, Tokenizer.load(options.folder))
        times: dict[str, list[float]] = {"kern": [], "torch": []}
        for _ in range(1 + ROUNDS):
            start = time.perf_counter()
            generator.prefill(ids)
            middle = time.perf_counter()
            torch_model.prefill(torch.tensor(ids))
            times["kern"].append((middle - start) * 1e3)
            times["torch"].append((time.perf_counter() - middle) * 1e3)
        kern_ms, torch_ms = (float(np.median(times[name][1:])) for name in ("kern", "torch"))
        decode = benchmark(generator, (), 256)
        print(
            json.dumps(
                {
                    **about(["python", *sys.argv]),
                    "device": executable.device.description,
                    "prefill_tokens": options.tokens,
                    "prefill_ms": kern_ms,
                    "torch_float32_prefill_ms": torch_ms,
                    "prefill_ratio": kern_ms / torch_ms,
                    "prefill_ms_all": times["kern"][1:],
                    "torch_float32_prefill_ms_all": times["torch"][1:],
                    "decode_ms_per_token": decode.decode.ms_per_token,
                    "decode_p10": decode.decode.p10,
                    "decode_p90": decode.decode.p90,
                    "bytes_per_step": decode.bytes_per_step,
                    "read_bandwidth": decode.bandwidth,
                    "bandwidth_share": decode.bandwidth_share,
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
