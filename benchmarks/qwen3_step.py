"""The launches of a decode step, and of a layer of a prefill, of Qwen3-4B's shape on random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch_gpu import Gpu, Launch, f32, i32, i64

from kern.kernels.cuda_plan import TOKEN_WARPS, CudaPlan
from kern.kernels.cuda_sizes import Sizes

LAYERS, HIDDEN, FFN, Q_HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 36, 2560, 9728, 32, 8, 128, 151_936
Q_SIZE, QKV, PAGE, EPS = Q_HEADS * HEAD_DIM, (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM, 16, 1e-6
SIZES = Sizes(HIDDEN, FFN, Q_HEADS, KV_HEADS, HEAD_DIM)
PAGE_STRIDE = LAYERS * 2 * KV_HEADS * PAGE * HEAD_DIM
PARTS, RING, MAX_CONTEXT, MOST_BLOCKS = 64, 64, 32_768, 256
PRODUCTS = {
    "qkv": 2 * QKV * HIDDEN,
    "o": 2 * HIDDEN * Q_SIZE,
    "gate_up": 4 * FFN * HIDDEN,
    "down": 2 * HIDDEN * FFN,
    "lm_head": 2 * VOCABULARY * HIDDEN,
}
"""Bytes that each reads."""
STEP_BYTES = LAYERS * sum(size for kind, size in PRODUCTS.items() if kind != "lm_head") + PRODUCTS["lm_head"]


@dataclass
class Model:
    """Random weights, the pool and the buffers of a step, for up to eight sequences."""

    gpu: Gpu
    sequences: int = 8
    layers: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch = self.gpu.torch
        torch.manual_seed(0)

        def normal(*shape: int, scale: float = 1.0, dtype: Any = torch.bfloat16) -> Any:
            return torch.empty(shape, device="cuda", dtype=dtype).normal_(std=scale)

        for _ in range(LAYERS):
            self.layers.append(
                {
                    "qkv": normal(QKV, HIDDEN, scale=0.02),
                    "o": normal(HIDDEN, Q_SIZE, scale=0.02),
                    "gate_up": normal(2 * FFN, HIDDEN, scale=0.02),
                    "down": normal(HIDDEN, FFN, scale=0.02),
                    "norm": 1 + normal(HIDDEN, scale=0.1),
                    "q_norm": 1 + normal(HEAD_DIM, scale=0.1),
                    "k_norm": 1 + normal(HEAD_DIM, scale=0.1),
                }
            )
        seqs, pages = self.sequences, MAX_CONTEXT // PAGE
        self.pages = pages
        self.table = normal(VOCABULARY, HIDDEN, scale=0.02)
        self.pool = normal(pages + 1, PAGE_STRIDE, scale=0.5)
        order = torch.randperm(pages, device="cuda", dtype=torch.int32)
        # Contexts up to pages / seqs share no page.
        self.block_table = torch.stack([order.roll(-seq * pages // seqs) for seq in range(seqs)])
        angles = torch.arange(MAX_CONTEXT + 64, device="cuda")[:, None] * 1e6 ** (
            -torch.arange(0, HEAD_DIM, 2, device="cuda") / HEAD_DIM
        )
        self.cos_sin = torch.cat([angles.cos(), angles.sin()], 1).float()
        self.residual = normal(512, HIDDEN, dtype=torch.float32)
        self.squares = normal(seqs, MOST_BLOCKS, dtype=torch.float32)
        self.delta, self.normed = normal(512, HIDDEN), normal(512, HIDDEN)
        self.qkv, self.attended = normal(512, QKV), normal(512, Q_SIZE)
        self.gated, self.gate_up = normal(512, FFN), normal(512, 2 * FFN)
        self.logits = normal(seqs, VOCABULARY, dtype=torch.float32)
        self.sums = normal(seqs, Q_HEADS, 64, HEAD_DIM, dtype=torch.float32)
        self.weights = normal(seqs, Q_HEADS, 64, 2, dtype=torch.float32)
        self.best, self.index = normal(seqs, PARTS, dtype=torch.float32), torch.zeros(seqs, PARTS, device="cuda").int()
        self.next_token, self.token, self.position, self.slot = (
            torch.arange(seqs, device="cuda", dtype=torch.int64) for _ in range(4)
        )
        self.length = torch.ones(seqs, device="cuda", dtype=torch.int32)
        self.ring = torch.zeros(seqs, RING, device="cuda", dtype=torch.int64)
        self.at(272)

    def at(self, length: int) -> None:
        """The next step sees `length` tokens, its own included."""
        position = length - 1
        self.token.copy_(self.gpu.torch.arange(self.sequences))
        self.position.fill_(position)
        self.length.fill_(length)
        self.slot.copy_(self.block_table[:, position // PAGE].long() * PAGE + position % PAGE)

    def cache(self, layer: int) -> Any:
        return self.pool.view(-1)[layer * 2 * KV_HEADS * PAGE * HEAD_DIM :]

    def step(self, plan: CudaPlan, seqs: int = 1) -> list[Launch]:
        """All launches of a decode step."""
        stream = self.normed, self.squares, self.residual
        args = (*stream, self.token, self.table, self.layers[0]["norm"], i32(HIDDEN))
        launches = [Launch("embedding", "embedding_weighted", (seqs, 1, 1), 256, args)]
        for layer in range(LAYERS):
            launches += self.layer(plan, layer, seqs)
        head = self.matvec(plan, "lm_head", "rms_matmul_f32", HIDDEN, seqs)
        sizes = i32(seqs), i32(VOCABULARY), i32(HIDDEN), f32(EPS)
        launches.append(head((self.logits, self.normed, self.squares, self.table, *sizes)))
        partial = (self.best, self.index, self.logits, i32(VOCABULARY))
        launches.append(Launch("argmax", "argmax_partial", (PARTS, seqs, 1), 256, partial))
        final = (self.next_token, self.best, self.index, i32(PARTS))
        launches.append(Launch("argmax", "argmax_final", (seqs, 1, 1), 32, final))
        carries = (self.token, self.position, self.slot, self.length, self.ring)
        rest = (self.next_token, self.block_table, i32(seqs), i32(self.pages), i32(RING))
        launches.append(Launch("advance", "advance", (1, 1, 1), 32, (*carries, *rest)))
        return launches

    def matvec(self, plan: CudaPlan, kind: str, symbol: str, k: int, seqs: int) -> Callable[[tuple[Any, ...]], Launch]:
        grid = (plan.matvec_blocks, -(-seqs // plan.rows), 1)
        depth = k // plan.split(k) if kind == "down" else k
        memory, threads = plan.matvec_shared_mem(depth, plan.rows, pairs=kind == "gate_up"), plan.matvec_threads
        return lambda args: Launch(kind, symbol, grid, threads, args, memory)

    def layer(self, plan: CudaPlan, layer: int, seqs: int) -> list[Launch]:
        w = self.layers[layer]
        m, eps, stream = i32(seqs), f32(EPS), (self.normed, self.squares, self.residual)
        hidden = i32(HIDDEN)
        qkv = self.matvec(plan, "qkv", "rms_matmul", HIDDEN, seqs)
        norms, where = (w["q_norm"], w["k_norm"]), (self.block_table, self.length)
        sizes = (m, i32(self.pages), i32(Q_HEADS), i32(KV_HEADS), i32(HEAD_DIM), i32(QKV), i64(PAGE_STRIDE))
        heads = (*sizes, eps, f32(HEAD_DIM**-0.5))
        results = self.attended, self.sums, self.weights
        call = (*results, self.qkv, *norms, self.position, self.cos_sin, self.cache(layer), self.slot)
        partial = Launch(
            "attention",
            "norm_append_attention_partial",
            (plan.token_blocks, 1, 1),
            32 * TOKEN_WARPS,
            (*call, *where, *heads),
            plan.token_shared_mem,
        )
        combined = (self.attended, self.sums, self.weights, self.length, i32(self.pages), i32(Q_HEADS))
        combine = Launch("combine", "attention_combine", (Q_HEADS // 4, seqs, 1), 128, combined)
        o = self.matvec(plan, "o", "output_matmul_add", Q_SIZE, seqs)
        gate_up = self.matvec(plan, "gate_up", "rms_gate_up", HIDDEN, seqs)
        down = self.matvec(plan, "down", "down_matmul_add", FFN, seqs)
        return [
            qkv((self.qkv, self.normed, self.squares, w["qkv"], m, i32(QKV), hidden, eps)),
            partial,
            combine,
            o((*stream, self.attended, w["o"], w["norm"], m, hidden, i32(Q_SIZE))),
            gate_up((self.gated, self.normed, self.squares, w["gate_up"], m, i32(FFN), hidden, eps)),
            down((*stream, self.gated, w["down"], w["norm"], m, hidden, i32(FFN))),
        ]


def prefill(model: Model, plan: CudaPlan, chunks: Sequence[int]) -> dict[str, list[Launch]]:
    """A layer's own kernels (all but the products) for a prompt in chunks, by kind."""
    torch, w = model.gpu.torch, model.layers[5]
    kinds: dict[str, list[Launch]] = {"attention": [], "heads": [], "norm": [], "silu_mul": []}
    done = 0
    for tokens in chunks:
        lens = torch.tensor([done + tokens], device="cuda", dtype=torch.int32)
        cu = torch.tensor([0, tokens], device="cuda", dtype=torch.int32)
        positions = torch.arange(done, done + tokens, device="cuda")
        table = model.block_table[0].long()
        slots = table[positions // PAGE] * PAGE + positions % PAGE
        done += tokens
        sizes = (i32(Q_HEADS), i32(KV_HEADS), i32(HEAD_DIM), i32(QKV), i64(PAGE_STRIDE))
        attention = (model.attended, model.qkv, model.cache(5), model.block_table, lens, cu, i32(1), i32(model.pages))
        grid = (KV_HEADS, -(-tokens * Q_HEADS // (64 * KV_HEADS)) + 1, 1)
        args: tuple[Any, ...] = (*attention, *sizes, f32(HEAD_DIM**-0.5))
        memory = plan.prefill_shared_mem
        kinds["attention"].append(Launch("", "attention_prefill", grid, 128, args, memory, dependent=False))
        where = (positions, model.cos_sin, model.cache(5), slots)
        args = (model.qkv, w["q_norm"], w["k_norm"], *where, *sizes, f32(EPS))
        grid = (tokens, (Q_HEADS + 2 * KV_HEADS) // 8, 1)
        kinds["heads"].append(Launch("", "norm_rope_cache", grid, 256, args, dependent=False))
        args = (model.normed, model.residual, model.delta, w["norm"], i32(HIDDEN), f32(EPS))
        kinds["norm"].append(Launch("", "add_rms_norm", (tokens, 1, 1), 256, args, dependent=False))
        grid = (tokens, -(-FFN // 2048), 1)
        args = (model.gated, model.gate_up, i32(FFN))
        kinds["silu_mul"].append(Launch("", "silu_mul", grid, 256, args, dependent=False))
    return kinds
