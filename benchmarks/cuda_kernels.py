"""How fast the CUDA kernels of a Qwen3-4B step are, over the ways they can be cut; checked before they are timed.

    python benchmarks/cuda_kernels.py [--quick] [--json benchmarks/results/cuda_kernels.json]

Random weights of the real shape, a graph of all launches of a decode step, each chained to the one before by
programmatic dependent launch. Reported: for each tuning the whole step, with the context at 272 tokens, and each kernel
alone; for the fastest one eight sequences, the step without each kernel, longer contexts; and the kernels of a prefill.
A graph's figure is the median of several times, each of ten replays. Needs PyTorch, for memory and references.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kern.models.kernels.compile_cuda import compile_cuda_modules
from kern.models.kernels.cuda_plan import CudaPlan, Tuning
from kern.models.kernels.cuda_sizes import Sizes

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

BASE = Tuning()
VARIED: list[dict[str, int]] = [
    {"ring_kb": 162, "slot_kb": 20},
    {"ring_kb": 162, "slot_kb": 40},
    {"ring_kb": 200, "slot_kb": 20},
    {"ring_kb": 200, "slot_kb": 40},
]
"""What differs from the default tuning in those that the sweep tries."""
SPLITS = [8, 16, 32, 64]
SOUND = 0.005
"""Most error of a kernel, relative to the norm of its output: rounding to bf16 makes 0.002."""


def compiled(plan: CudaPlan) -> Mapping[str, bytes]:
    """In a process of its own, so that many compile at once."""
    return compile_cuda_modules(plan)


@dataclass(frozen=True)
class Launch:
    """One launch: `kind` for reports, arguments as ctypes values or tensors."""

    kind: str
    symbol: str
    grid: tuple[int, int, int]
    threads: int
    args: tuple[Any, ...]
    shared_mem: int = 0
    dependent: bool = True


def i32(value: int) -> ctypes.c_int32:
    return ctypes.c_int32(value)


def i64(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)


def f32(value: float) -> ctypes.c_float:
    return ctypes.c_float(value)


class Gpu:
    """Modules, launches and graphs on PyTorch's device."""

    def __init__(self) -> None:
        import torch
        from cuda.bindings import driver

        self.torch, self.driver = torch, driver
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.stream = torch.cuda.Stream()

    def checked(self, result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise RuntimeError(str(result[0]))
        return result[1] if len(result) > 1 else None

    def functions(self, images: Mapping[str, bytes]) -> dict[str, Any]:
        """Every kernel of the modules by symbol."""
        found = {}
        for image in images.values():
            module = self.checked(self.driver.cuModuleLoadData(image))
            count = self.checked(self.driver.cuModuleGetFunctionCount(module))
            for function in self.checked(self.driver.cuModuleEnumerateFunctions(count, module)):
                found[self.checked(self.driver.cuFuncGetName(function)).decode()] = function
        return found

    def launch(self, functions: Mapping[str, Any], launch: Launch) -> None:
        driver, function = self.driver, functions[launch.symbol]
        if launch.shared_mem > 48 * 1024:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.checked(driver.cuFuncSetAttribute(function, attribute, launch.shared_mem))
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.threads, 1, 1
        config.sharedMemBytes, config.hStream = launch.shared_mem, self.stream.cuda_stream
        if launch.dependent:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        values = [arg.value if isinstance(arg, ctypes._SimpleCData) else arg.data_ptr() for arg in launch.args]
        types = [type(arg) if isinstance(arg, ctypes._SimpleCData) else ctypes.c_void_p for arg in launch.args]
        self.checked(driver.cuLaunchKernelEx(config, function, (tuple(values), tuple(types)), 0))

    def run(self, functions: Mapping[str, Any], launches: Sequence[Launch]) -> None:
        """One after another, and wait."""
        self.torch.cuda.synchronize()
        for launch in launches:
            self.launch(functions, launch)
        self.stream.synchronize()

    def time(
        self, functions: Mapping[str, Any], launches: Sequence[Launch], repeats: int = 7, replays: int = 10
    ) -> float:
        """Microseconds of the launches as a graph."""
        driver, stream = self.driver, self.stream
        self.torch.cuda.synchronize()
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self.checked(driver.cuStreamBeginCapture(stream.cuda_stream, mode))
        for launch in launches:
            self.launch(functions, launch)
        graph = self.checked(driver.cuStreamEndCapture(stream.cuda_stream))
        ready = self.checked(driver.cuGraphInstantiate(graph, 0))
        times = []
        for repeat in range(repeats + 1):
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            for _ in range(replays):
                self.checked(driver.cuGraphLaunch(ready, stream.cuda_stream))
            end.record(stream)
            stream.synchronize()
            if repeat:
                times.append(begin.elapsed_time(end) * 1e3 / replays)
        self.checked(driver.cuGraphExecDestroy(ready))
        self.checked(driver.cuGraphDestroy(graph))
        return statistics.median(times) if times else 0.0


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
        w, splits = self.layers[layer], plan.tuning.splits
        m, eps, stream = i32(seqs), f32(EPS), (self.normed, self.squares, self.residual)
        hidden = i32(HIDDEN)
        qkv = self.matvec(plan, "qkv", "rms_matmul", HIDDEN, seqs)
        norms, where = (w["q_norm"], w["k_norm"]), (self.block_table, self.length)
        sizes = (i32(self.pages), i32(Q_HEADS), i32(KV_HEADS), i32(HEAD_DIM), i32(QKV), i64(PAGE_STRIDE))
        heads = (*sizes, eps, f32(HEAD_DIM**-0.5))
        call = (self.sums, self.weights, self.qkv, *norms, self.position, self.cos_sin, self.cache(layer), self.slot)
        partial = Launch(
            "attention",
            "norm_append_attention_partial",
            (splits, KV_HEADS, seqs),
            128,
            (*call, *where, *heads),
            plan.decode_shared_mem,
        )
        combined = (self.attended, self.sums, self.weights, self.length, i32(self.pages), i32(Q_HEADS))
        combine = Launch("combine", "attention_combine", (Q_HEADS, seqs, 1), HEAD_DIM, combined)
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


# References in float64


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


# Prefill


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
        grid = (-(-tokens // 64) + 1, Q_HEADS, 1)
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


def report(name: str, microseconds: float, size: float) -> None:
    print(f"{name:58} {microseconds:9.1f} µs  {size / microseconds / 1e6:6.3f} TB/s", flush=True)


def differing_logits(model: Model, functions: Mapping[str, Any], launches: Sequence[Launch]) -> int:
    """Logits that differ between kernels that overlap and the same ones one at a time, over a few steps."""
    torch, logits = model.gpu.torch, []
    apart = [replace(launch, dependent=False) for launch in launches]
    for chain in (apart, launches):
        model.at(272)
        model.gpu.time(functions, chain, repeats=0, replays=3)
        logits.append(model.logits[0].clone())
    return int((logits[0].view(torch.int32) != logits[1].view(torch.int32)).sum())


def sweep(model: Model, images: Mapping[Tuning, Mapping[str, bytes]], target: str) -> list[dict[str, Any]]:
    """For each tuning the time of a step, of its products without the rest, and of each kernel alone; fastest first.

    `sound`: kernels that overlap give the logits of the same ones one at a time, and are right.
    """
    results = []
    for tuning, modules in images.items():
        plan, functions = CudaPlan(target, SIZES, tuning), model.gpu.functions(modules)
        step = model.step(plan)
        errors, differing = check(model, functions, plan, 1, 272), differing_logits(model, functions, step)
        sound = differing == 0 and all(value <= SOUND for value in errors.values())
        model.at(272)
        microseconds = model.gpu.time(functions, step)
        products = model.gpu.time(functions, [launch for launch in step if launch.kind in PRODUCTS])
        print(f"\n{tuning}" if sound else f"\n{tuning} WRONG: {differing} logits differ, errors {errors}")
        report("step", microseconds, STEP_BYTES)
        report("products without the rest", products, STEP_BYTES)
        result = {"us": microseconds, "products": products, "alone": alone(model, functions, plan), "sound": sound}
        results.append({"tuning": asdict(tuning), "errors": errors, **result})
    return sorted(results, key=lambda result: result["us"])


def alone(model: Model, functions: Mapping[str, Any], plan: CudaPlan, seqs: int = 1) -> dict[str, float]:
    """Each kind of kernel by itself, the time of one launch."""
    found = {}
    step = model.step(plan, seqs)
    for kind in dict.fromkeys(launch.kind for launch in step):
        model.at(272)
        own = [launch for launch in step if launch.kind == kind]
        found[kind] = model.gpu.time(functions, own) / len(own)
        report(f"{kind} alone, each of {len(own)}, {seqs} sequences", found[kind], PRODUCTS.get(kind, 0))
    return found


def details(model: Model, functions: Mapping[str, Any], plan: CudaPlan) -> dict[str, Any]:
    """The step without each kernel; prefill."""
    time = model.gpu.time
    model.at(272)
    step = model.step(plan)
    found: dict[str, Any] = {"without": {}}
    for kind in dict.fromkeys(launch.kind for launch in step):
        model.at(272)
        found["without"][kind] = time(functions, [launch for launch in step if launch.kind != kind])
        report(f"step without {kind}", found["without"][kind], 0)
    for chunks in ([512], [512, 197]):
        for kind, launches in prefill(model, plan, chunks).items():
            found[f"prefill {kind} {chunks}"] = time(functions, launches)
            report(f"prefill {chunks} {kind}, a layer", found[f"prefill {kind} {chunks}"], 0)
    return found


def contexts(model: Model, images: Mapping[Tuning, Mapping[str, bytes]], target: str) -> dict[str, float]:
    """A step's time for short and long contexts, for each number of splits."""
    found = {}
    for length in (17, 709, 4096, 16_384):
        for tuning, modules in images.items():
            model.at(length)
            step = model.step(CudaPlan(target, SIZES, tuning))
            name = f"context {length}, {tuning.splits} splits"
            found[name] = model.gpu.time(model.gpu.functions(modules), step, repeats=3)
            report(name, found[name], STEP_BYTES + length * LAYERS * 4 * KV_HEADS * HEAD_DIM)
    return found


def measured(pool: ProcessPoolExecutor, target: str, quick: bool) -> dict[str, Any]:
    """Everything: the sweep, then what the fastest tuning that is right does."""

    def images_of(tunings: Sequence[Tuning], sizes: Sizes = SIZES) -> dict[Tuning, Mapping[str, bytes]]:
        plans = [CudaPlan(target, sizes, tuning) for tuning in tunings]
        return dict(zip(tunings, pool.map(compiled, plans), strict=True))

    images = images_of([replace(BASE, **varied) for varied in VARIED])
    model = Model(Gpu())
    results: dict[str, Any] = {"gpu": model.gpu.torch.cuda.get_device_name(), "bytes": STEP_BYTES}
    results["sweep"] = sweep(model, images, target)
    best = next(Tuning(**result["tuning"]) for result in results["sweep"] if result["sound"])
    print(f"\nbest: {best}")
    sizes = replace(SIZES, sequences=8)
    eight, of_eight = CudaPlan(target, sizes, best), model.gpu.functions(images_of([best], sizes)[best])
    plan, functions = CudaPlan(target, SIZES, best), model.gpu.functions(images[best])
    results["errors"] = check_prefill(model, functions, plan)
    for seqs, length in ((3, 33), (8, 1000)):
        results["errors"][f"{seqs}"] = check(model, of_eight, eight, seqs, length)
    print(json.dumps(results["errors"]))
    model.at(272)
    results["eight"] = model.gpu.time(of_eight, model.step(eight, 8))
    report("step, 8 sequences", results["eight"], STEP_BYTES)
    results["eight alone"] = alone(model, of_eight, eight, 8)
    if not quick:
        results["best"] = details(model, functions, plan)
        splits = images_of([replace(best, splits=splits) for splits in SPLITS])
        results["contexts"] = contexts(model, splits, target)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out prefill and long contexts")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        results = measured(pool, options.target, options.quick)
    if options.json is not None:
        temporary = options.json.with_suffix(".partial")
        temporary.write_text(json.dumps(results, indent=1) + "\n")
        temporary.replace(options.json)


if __name__ == "__main__":
    main()
