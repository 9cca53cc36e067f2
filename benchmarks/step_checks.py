"""The kernels of a decode step and of a prefill against float64, each on the inputs that the one before it left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qwen3_step import EPS, FFN, HEAD_DIM, KV_HEADS, LAYERS, PAGE, Q_HEADS, Q_SIZE, Model, prefill

from kern.kernels.cuda_plan import CudaPlan


def normed(x: Any, weight: Any) -> Any:
    x = x.double()
    return (x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt() * weight.double()).bfloat16().double()


def rotated(model: Model, heads: Any, norm: Any, position: int) -> Any:
    """Heads [..., HEAD_DIM] normed and rotated."""
    x = heads.double()
    x = x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt() * norm.double()
    cos, sin = model.cos_sin[position].double().split(HEAD_DIM // 2)
    low, high = x.split(HEAD_DIM // 2, -1)
    return model.gpu.torch.cat([low * cos - high * sin, high * cos + low * sin], -1).bfloat16().double()


def attended(model: Model, layer: int, row: Any, seq: int, length: int) -> Any:
    """Attention of one token in float64, from its row of queries, keys and values and the pool's earlier slots."""
    torch, w = model.gpu.torch, model.layers[layer]
    q, k, v = row.view(-1, HEAD_DIM).split([Q_HEADS, KV_HEADS, KV_HEADS])
    q, k, v = rotated(model, q, w["q_norm"], length - 1), rotated(model, k, w["k_norm"], length - 1), v.double()
    pages = model.pool.view(-1, LAYERS, 2, KV_HEADS, PAGE, HEAD_DIM)[:, layer]
    flat = (
        pages[model.block_table[seq].long()]
        .permute(1, 2, 0, 3, 4)
        .reshape(2, KV_HEADS, -1, HEAD_DIM)[:, :, :length]
        .double()
    )
    flat[0, :, -1], flat[1, :, -1] = k, v
    keys, values = flat.repeat_interleave(Q_HEADS // KV_HEADS, 1)
    scores = torch.einsum("hd,htd->ht", q, keys) * HEAD_DIM**-0.5
    return torch.einsum("ht,htd->hd", scores.softmax(-1), values).reshape(-1)


def error(got: Any, want: Any) -> float:
    """‖got - want‖ / ‖want‖."""
    return float((got.double() - want).norm() / want.norm())


def check(model: Model, functions: Mapping[str, Any], plan: CudaPlan, seqs: int, length: int) -> dict[str, float]:
    """Errors of one layer's kernels against float64, each on the inputs that the kernel before it left."""
    torch, layer = model.gpu.torch, 5
    w, errors = model.layers[layer], {}
    model.residual.normal_()
    model.at(length)
    embedding, *_ = model.step(plan, seqs)
    qkv, partial, combine, o, gate_up, down = model.layer(plan, layer, seqs)
    for poisoned in (model.qkv, model.attended, model.gated, model.logits, model.sums, model.weights, model.squares):
        poisoned.fill_(float("nan"))
    model.gpu.run(functions, [embedding, qkv])
    errors["residual"] = error(model.residual[:seqs], model.table[model.token[:seqs]].double())
    first = normed(model.residual[:seqs], model.layers[0]["norm"])
    errors["rms_matmul"] = error(model.qkv[:seqs], first @ w["qkv"].double().T)
    model.gpu.run(functions, [partial, combine])
    want = torch.stack([attended(model, layer, model.qkv[s], s, length) for s in range(seqs)])
    errors["attention"] = error(model.attended[:seqs], want)
    key, value = model.qkv[:seqs, Q_SIZE:].view(seqs, 2, KV_HEADS, HEAD_DIM).unbind(1)
    slots = [divmod(int(model.slot[s]), PAGE) for s in range(seqs)]
    pages = model.pool.view(-1, LAYERS, 2, KV_HEADS, PAGE, HEAD_DIM)[:, layer]
    written = torch.stack([pages[page, :, :, slot] for page, slot in slots])
    errors["keys"] = error(written[:, 0], rotated(model, key, w["k_norm"], length - 1))
    errors["values"] = error(written[:, 1], value.double())
    before = model.residual[:seqs].double()
    model.gpu.run(functions, [o])
    added = model.attended[:seqs].double() @ w["o"].double().T
    errors["output_matmul_add"] = error(model.residual[:seqs].double() - before, added)
    model.gpu.run(functions, [gate_up])
    gate, up = (normed(model.residual[:seqs], w["norm"]) @ w["gate_up"].double().T).split(FFN, -1)
    errors["rms_gate_up"] = error(model.gated[:seqs], torch.nn.functional.silu(gate) * up)
    before = model.residual[:seqs].double()
    model.gpu.run(functions, [down])
    added = model.gated[:seqs].double() @ w["down"].double().T
    errors["down_matmul_add"] = error(model.residual[:seqs].double() - before, added)
    head, first, final, _ = model.step(plan, seqs)[-4:]
    model.gpu.run(functions, [head, first, final])
    logits = normed(model.residual[:seqs], w["norm"]) @ model.table.double().T
    errors["rms_matmul_f32"] = error(model.logits[:seqs], logits)
    errors["argmax"] = float((model.next_token[:seqs] != model.logits[:seqs].argmax(-1)).sum())
    return errors


def check_prefill(model: Model, functions: Mapping[str, Any], plan: CudaPlan) -> dict[str, float]:
    """Errors of a second chunk's attention, and of its queries and keys, against float64."""
    torch, (begun, tokens) = model.gpu.torch, (300, 211)
    model.qkv.normal_()
    before = model.qkv[:tokens].clone()
    kinds = prefill(model, plan, [begun, tokens])
    model.gpu.run(functions, [kinds["heads"][1]])
    model.attended.fill_(float("nan"))
    model.gpu.run(functions, [kinds["attention"][1]])
    rows = [0, 1, 63, 64, 100, 210]
    want = torch.stack([attended(model, 5, before[t], 0, begun + t + 1) for t in rows])
    clean = bool(model.attended[:tokens].isfinite().all()) and bool(model.attended[tokens:].isnan().all())
    return {"prefill": error(model.attended[rows], want), "prefill_rows": 0.0 if clean else 1.0}
