"""What goes wrong with a GPU, at the command line: one clear line, the right exit code, an end without a traceback."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.device.base import OutOfMemory
from kern.engine import score
from kern.engine.choices import UnusableLogits
from kern.runtime.loading import load
from kern.text import Tokenizer
from support import host_driven
from support.chain import write_chain
from support.nvrtc import cubin

if TYPE_CHECKING:
    from gpu.conftest import Kern
    from kern.device.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu

RUN = ("--prompt-ids", "1,2,3,4,5", "--chunk", 4, "--max-tokens", 8, "--ignore-stop", "--json")
MOST = 2**31


def refused(done: subprocess.CompletedProcess[str], code: int, *patterns: str) -> None:
    """The command ended with `code`, and said so in one line and one of help, and in JSON."""
    assert done.returncode == code, done
    error = json.loads(done.stdout)["error"]
    said = done.stderr.splitlines()
    assert [line.partition(": ")[0] for line in said] == ["kern", "help"], done.stderr
    assert said == [f"kern: error[{error['code']}]: {error['message']}", f"help: {error['help']}"]
    for pattern in patterns:
        assert re.search(pattern, said[0]), said[0]


def test_kernels_for_another_architecture(gpu: CudaDevice, kern: Kern, tmp_path: Path) -> None:
    other = "sm_90a" if gpu.target == "sm_100" else "sm_100"
    build(BuildOptions("llama", random=True, config="tiny", target=other), tmp_path / "tiny")

    refused(kern("run", tmp_path / "tiny", *RUN), 1, rf"is built for {other}, and the device .* runs {gpu.target}")


def test_a_gpu_that_is_not_there(kern: Kern, tiny_folder: Callable[..., Path]) -> None:
    refused(kern("run", tiny_folder("llama"), *RUN, "--device", "cuda:64"), 2, "there is no GPU cuda:64")


@pytest.mark.parametrize("device", [(), ("--device", "cuda")])
def test_a_driver_that_has_no_gpu(kern: Kern, tiny_folder: Callable[..., Path], device: tuple[str, ...]) -> None:
    done = kern("run", tiny_folder("llama"), *RUN, *device, CUDA_VISIBLE_DEVICES="")

    refused(done, 2, r"no GPU can be used: cuInit: CUDA_ERROR_NO_DEVICE")


def test_states_that_the_memory_cannot_hold(kern: Kern, tiny_folder: Callable[..., Path], tmp_path: Path) -> None:
    # The command takes no more capacity than the model has positions; so these are raised.
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "tiny")
    settings = json.loads((folder / "text.json").read_text()) | {"positions": MOST}
    (folder / "text.json").write_text(json.dumps(settings))

    done = kern("run", folder, *RUN, "--capacity", MOST)

    refused(done, 1, r"[\d,]+ bytes are planned \(weights .* states [\d,]+.*\); device cuda:0 has [\d,]+ free")


def test_memory_is_counted_before_any_is_taken(
    gpu: CudaDevice, tiny_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(type(gpu), "alloc", lambda device, size: taken.append(size))
    monkeypatch.setattr(type(gpu), "load_regions", lambda device, *regions: taken.append(regions))

    with pytest.raises(OutOfMemory) as caught:
        load(tiny_folder("llama"), capacity=MOST)

    found = re.findall(r"([\d,]+) (?:bytes are planned|free)", str(caught.value))
    planned, left = (int(number.replace(",", "")) for number in found)
    assert planned > left > 0
    assert not taken


@pytest.mark.parametrize("options", [{}, {"eager": True}, {"host": True}])
def test_logits_that_no_token_can_be_chosen_from(gpu: CudaDevice, tmp_path: Path, options: dict[str, Any]) -> None:
    folder = write_chain(tmp_path / "chain", broken=20, target=gpu.target)
    with load(folder, capacity=128) as executable:
        generator = host_driven.generator(executable, Tokenizer.load(folder), **options)
        generation = generator.generate([1, 14], max_tokens=60, ignore_stop=True)
        with pytest.raises(UnusableLogits) as caught:
            list(generation)
        following = [token.id for token in generator.generate([21], max_tokens=30, ignore_stop=True)]
        with pytest.raises(UnusableLogits, match=r"NaN in the nll of `score` at position \d"):
            score(executable, generator.settings, [5, 6, 20, 21])

    assert generation.output_ids == list(range(15, 21))
    assert caught.value.message.startswith("NaN or +inf in the logits of `decode` at position 7 ")
    assert following == list(range(22, 52)), "what a broken text left in the state reaches no other"


@pytest.mark.parametrize("host", [False, True])
def test_rounds_without_a_token_to_choose(gpu: CudaDevice, tmp_path: Path, host: bool) -> None:
    folder = write_chain(tmp_path / "chain", broken=20, target=gpu.target, draft="random")
    with load(folder, capacity=128) as executable:
        generator = host_driven.generator(executable, Tokenizer.load(folder), spec=True, host=host)
        generation = generator.generate([1, 14], ignore_stop=True)
        with pytest.raises(UnusableLogits) as caught:
            list(generation)

    # A draft of the id 20 may reach rows before it: attention multiplies what a row does not see by 0.
    count = len(generation.output_ids)
    assert generation.output_ids == list(range(15, 15 + count))
    assert count <= 6
    assert caught.value.message.startswith(f"NaN or +inf in the logits of `verify` at position {1 + count} ")


WILD = "*(volatile int *)8 = 1;"
TRAP = 'asm volatile("trap;");'

C_TYPES = {"i32": "int", "u32": "unsigned", "i64": "long long", "f32": "float", "u8": "unsigned char"}


def broken(folder: Path, output: Path, kernel: str, body: str, architecture: str) -> Path:
    """The folder with another kernel, of the same parameters, behind the last step of `kernel`."""
    shutil.copytree(folder, output)
    manifest = json.loads((output / "manifest.json").read_text())
    step = manifest["kernels"][kernel]["impl"]["steps"][-1]
    signature = ", ".join(f"{C_TYPES.get(param, 'void *')} p{i}" for i, param in enumerate(step["params"]))
    image = cubin(f'extern "C" __global__ void broken({signature}) {{ {body} }}', architecture)
    (output / "kernels" / "broken.cubin").write_bytes(image)
    step |= {"symbol": "broken", "cubin": "broken.cubin", "sha256": hashlib.sha256(image).hexdigest()}
    (output / "manifest.json").write_text(json.dumps(manifest))
    return output


@pytest.mark.parametrize("way", ["graphs", "eager", "check"])
@pytest.mark.parametrize(
    ("program", "kernel", "step", "body", "error"),
    [
        ("prefill", "embedding", 0, WILD, "ILLEGAL_ADDRESS"),
        ("decode", "argmax", 1, TRAP, "(LAUNCH_FAILED|ILLEGAL_INSTRUCTION)"),
        ("decode", "advance", 0, WILD, "ILLEGAL_ADDRESS"),
    ],
)
def test_a_kernel_that_faults(
    gpu: CudaDevice,
    kern: Kern,
    tiny_folder: Callable[..., Path],
    tmp_path: Path,
    program: str,
    kernel: str,
    step: int,
    body: str,
    error: str,
    way: str,
) -> None:
    folder = broken(tiny_folder("qwen3"), tmp_path / "broken", kernel, body, gpu.target)

    done = kern("run", folder, *RUN, *(() if way == "graphs" else (f"--{way}",)))

    where = rf", in one of these launch lists: .*{program} · "
    if way == "check":
        where = rf" in {program} · {kernel} · {kernel} · step {step}: "
    refused(done, 1, rf"a kernel on cuda:0 failed{where}.*CUDA_ERROR_{error}")
