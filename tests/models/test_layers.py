"""Operations and interfaces: a name that is missing, wrong or unknown is an error when the manifest is made."""

from __future__ import annotations

import pytest

from kern.kernels.implementation import Entry
from kern.manifest.builder import BuilderError, ManifestBuilder, ProgramBuilder
from kern.manifest.types import F32, I32, BufferArg
from kern.models.layers import Operation, op, write

NAMES = {"normed": BufferArg(buf="y"), "residual": BufferArg(buf="x"), "weight": BufferArg(buf="w"), "hidden": 64}
NORM = op("norm", "rms_norm", y="normed", x="residual")


@pytest.fixture
def program() -> ProgramBuilder:
    builder = ManifestBuilder("test")
    entry = Entry("rms_norm")
    builder.kernel("rms_norm", entry.kernel(), entry.interface)
    return builder.program("main")


def test_parameters_take_what_is_given_or_has_their_name(program: ProgramBuilder) -> None:
    write(program, NAMES | {"eps": 0.5}, NORM, prefix="L0.")
    (dispatch,) = program.build().dispatches

    assert dispatch.label == "L0.norm"
    assert dispatch.args == (*(BufferArg(buf=name) for name in "yxw"), I32(i32=64), F32(f32=0.5))


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (NORM, "norm: unknown name `eps` for the parameter `eps` of `rms_norm`"),
        (op("norm", "rms_norm", y="norm", x="residual", eps=1), "unknown name `norm` for the parameter `y`"),
        (op("norm", "rms_norm", y="normed", x="residual", eps=1, z=1), "norm: `rms_norm` has no parameter `z`"),
        (op("norm", "add_rms_norm", y="normed", x="residual", eps=1, delta=1), "unknown kernel `add_rms_norm`"),
    ],
)
def test_a_name_that_is_not_known_is_refused(program: ProgramBuilder, operation: Operation, says: str) -> None:
    with pytest.raises(BuilderError, match=says):
        write(program, NAMES, operation)


def test_a_step_takes_parameters_and_scratch_of_its_entry_alone() -> None:
    with pytest.raises(KeyError, match="vocabulary"):
        Entry("rms_norm").bind(["vocabulary"])
    with pytest.raises(KeyError, match="best"):
        Entry("argmax").bind(["out best"])
