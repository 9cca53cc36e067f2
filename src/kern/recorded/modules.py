"""The recorded modules: whether they have the kernels that were launched from them, and the target that runs all."""

from __future__ import annotations

from collections.abc import Mapping

from kern.artifact import cubin
from kern.artifact.elf import Elf
from kern.artifact.errors import BadModule
from kern.artifact.targets import runs_on
from kern.artifact.types import KernelInfo
from kern.manifest.errors import KernError, variant
from kern.manifest.params import layout
from kern.manifest.types import Step
from kern.recorded.assumptions import INSTANCE, PARAMETERS, Refuted

WrongTarget = variant(KernError, "recorded-for-other-target", "The recorded kernels do not run on the build's target.")


def target_of(asked: str, modules: Mapping[str, bytes], steps: tuple[Step, ...]) -> str:
    """The target of a build on `modules`, by the name of their files, which `steps` launch from.

    `asked`, if it runs all modules; for `auto` the most specific of the modules' targets that does: code for sm_90 runs
    next to code for sm_90a, and vLLM's recordings have both. Raises BadModule, WrongTarget, and Refuted where a module
    does not hold a step's kernel, or with other parameters.
    """
    described = {name: _described(name, image) for name, image in modules.items()}
    for step in steps:
        assert step.cubin is not None
        _require_kernel(step, described[step.cubin][1])
    built_for = sorted({target for target, _ in described.values()}, reverse=True)
    candidates = built_for if asked == "auto" else [asked]
    fitting = [target for target in candidates if all(runs_on(module, target) for module in built_for)]
    if not fitting:
        machine = "one machine" if asked == "auto" else asked
        raise WrongTarget(
            f"the recorded kernels are built for {', '.join(built_for)}, which do not all run on {machine}",
            "record on the machine that is built for, or leave --target out",
        )
    return fitting[0]


def _described(name: str, image: bytes) -> tuple[str, dict[str, KernelInfo]]:
    try:
        elf = Elf(image)
        if elf.machine != cubin.MACHINE:
            raise BadModule("it is not code for a GPU")
        return cubin.describe(elf)
    except BadModule as error:
        raise BadModule(f"the recorded module {name} cannot be used: {error.message}", "record again") from None


def _require_kernel(step: Step, kernels: Mapping[str, KernelInfo]) -> None:
    kernel = kernels.get(step.symbol)
    if kernel is None:
        raise Refuted(INSTANCE, f"the recorded module {step.sha256} has no {step.symbol}", "what was launched from it")
    if kernel.layout != layout(step.params):
        evidence = f"{step.symbol} in the recorded module {step.sha256} takes {kernel.layout}"
        raise Refuted(PARAMETERS, evidence, layout(step.params))
