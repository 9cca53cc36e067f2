"""vLLM's kernels for the host device, and an artifact built from a recording of them: so that it can run anywhere."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kern.artifact.folder import KERNELS, MANIFEST, WEIGHTS
from kern.checkpoints.config import TransformerConfig
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.contracts.text import TOKENS
from kern.device.host.target import host_target
from kern.kernels.compile_host import SOURCES as HOST_SOURCES
from kern.kernels.compile_host import compile_host_modules
from kern.kernels.host_library import host_kernels
from kern.kernels.implementation import Entry
from kern.manifest.types import Step
from kern.manifest.writing import write
from kern.mining import read_recording
from kern.mining.recording import process_folders
from kern.models.text_files import text_settings, write_text_files
from kern.models.transformer import build_manifest
from kern.models.weights import RECORDED, weight_group, write_weights
from kern.recorded.evidence import gather_evidence
from kern.recorded.kernel_set import entries
from kern.recorded.library import recorded_kernels
from kern.recorded.vllm.engine import VLLM
from kern.recorded.vllm.param_bindings import SOURCES
from kern.recorded.vllm.signatures import SIGNATURES
from support.host_modules import shared_object
from support.vllm_recording import ADD_NORM, HEAD_NORM, HIDDEN_NORM, PARTS, ROTARY, SILU

_TEXT = (Path(__file__).parent / "vllm_kernels.c").read_text()
_PARTS = {
    "layernorm": "LAYERNORM",
    "rotary": "ROTATION",
    "silu": "ACTIVATION",
    "cache": "CACHE",
    "attention of several": "SEVERAL",
    "attention of one": "ONE",
    "reduce": "REDUCE",
    "embedding": "EMBEDDING",
}


def host_module(name: str, config: TransformerConfig) -> bytes:
    """A module with the kernels of a recorded one."""
    symbols = {"HIDDEN_NORM": HIDDEN_NORM, "HEAD_NORM": HEAD_NORM, "ADD_NORM": ADD_NORM, "ROTARY": ROTARY, "SILU": SILU}
    sizes = {"HEADS": config.heads, "KV_HEADS": config.kv_heads, "DIM": config.head_dim, "PARTS": PARTS}
    lines = [f"#define {name} {value}" for name, value in {_PARTS[name]: 1, **sizes}.items()]
    lines += [f"#define ABI_{role.upper()} {types}" for role, types in _abi(name).items()]
    # KERN_KERNEL makes strings of names, which macros inside it would not be replaced in.
    text = _TEXT
    for macro, symbol in symbols.items():
        text = text.replace(f"KERN_KERNEL({macro},", f"KERN_KERNEL({symbol},")
    source = "\n".join([*lines, text])
    return shared_object(source, f"-I{HOST_SOURCES}", "-fopenmp", "-lm", target=host_target())


def _abi(name: str) -> dict[str, str]:
    """Each role's parameters as an ABI string has them: an address without a binding is passed as a number."""
    types: dict[str, str] = {}
    for source in SOURCES:
        if source.single is None or source.parts != ("attention",) or source.single == (name == "attention of one"):
            role = {"input_norm": "norm", "q_norm": "norm", "k_norm": "norm"}.get(source.parts[0], source.parts[0])
            signature = next(signature for signature in SIGNATURES if signature.role == role)
            kinds = (scalar or ("ptr" if param in source.bindings else "i64") for param, scalar in signature.params)
            types[role] = f'"{",".join(kinds)}"'
    return types


def build_for_host(dump: Path, folder: Path, config: TransformerConfig, seed: int) -> Path:
    """The artifact of a recording whose modules are for the host: what `build` makes of one for a GPU."""
    (process,) = process_folders(dump)
    recording = read_recording(process)
    evidence = gather_evidence(VLLM, recording.launches, config)
    recorded = recorded_kernels(evidence, config)
    own = {**compile_host_modules(host_target()), "embedding_bf16.so": host_module("embedding", config)}
    hashes = {name: hashlib.sha256(image).hexdigest() for name, image in own.items()}
    entry = Entry("embedding_bf16")
    params, args = entry.bind(entry.interface)
    embedding = Step(
        symbol="embedding_bf16",
        params=params,
        block=(1, 1, 1),
        grid=(TOKENS, 1, 1),
        cubin="embedding_bf16.so",
        sha256=hashes["embedding_bf16.so"],
        args=args,
    )
    kernels = host_kernels(hashes, q_heads=config.heads, kv_heads=config.kv_heads)
    kernels = {
        **kernels,
        **{f"{which}_matmul": kernels["matmul"] for which in ("qkv", "output", "gate_up", "down")},
        "logits_matmul": kernels["matmul_f32"],
        "embedding_bf16": entry.kernel(embedding),
    }
    manifest = build_manifest(config, entries(kernels, recorded), model="recorded", block=evidence.block)
    checkpoint = RandomCheckpoint(config, seed)
    (folder / KERNELS).mkdir(parents=True)
    (folder / MANIFEST).write_text(write(manifest))
    modules = own | {VLLM.module_file(sha256): recording.module(sha256) for sha256 in recording.modules}
    steps = (step for kernel in manifest.kernels.values() for step in kernel.impl.steps)
    for name in {step.cubin for step in steps if step.cubin is not None}:
        (folder / KERNELS / name).write_bytes(modules[name])
    write_weights(folder / WEIGHTS, [weight_group(checkpoint, RECORDED)], lambda done, total: None)
    write_text_files(folder, text_settings(config, checkpoint.text, RECORDED), None)
    return folder
