"""Random simulated programs, and how they behave, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from kern.manifest.expressions import Sym
from support.recordings_program import Arg, Behaviour, Op, Program

TOKENS = Sym(sym="tokens")

NORM = Op(
    "norm",
    (Arg("residual"), Arg("read"), Arg("weight"), Arg("f32", 1e-6), Arg("i32", TOKENS), Arg("i32", 2560)),
    (TOKENS, 1, 1),
)
"""What every layer has: without any launch whose size varies, no token count could be found."""

_PARTS: tuple[tuple[Op, ...], ...] = (
    (Op("heads", (Arg("write"), Arg("read"), Arg("weight"), Arg("i32", TOKENS * 32)), (TOKENS * 32, 1, 1)),),
    (Op("rotate", (Arg("input"), Arg("read"), Arg("shared"), Arg("u8", 1)), (TOKENS, 1, 1)),),
    (Op("store", (Arg("read"), Arg("state"), Arg("input"), Arg("i64", 1024)), (TOKENS, 8, 1)),),
    (Op("act", (Arg("write", width=1024), Arg("read"), Arg("i32", 9728)), ((TOKENS * 5).over(2), 1, 1)),),
    (Op("fixed", (Arg("write"), Arg("read"), Arg("weight")), (132, 1, 1)),),
    (Op("product", (Arg("write"), Arg("read"), Arg("weight")), (132, 1, 1), by_size=True, opaque=True),),
    (
        Op(
            "packed",
            (Arg("write"), Arg("read"), Arg("weight"), Arg("i64", TOKENS)),
            (66, 2, 1),
            by_size=True,
            struct=True,
        ),
    ),
    (
        Op("mix", (Arg("write"), Arg("read"), Arg("state")), ((TOKENS + 1).over(4), 8, 1), when="many", image="many"),
        Op("mix", (Arg("write"), Arg("read"), Arg("state")), (1, 8, 16), when="one", image="one"),
        Op("merge", (Arg("write"), Arg("read")), (TOKENS, 32, 1), when="one"),
    ),
    (Op("aside", (Arg("shared"), Arg("i32", 3)), (8, 1, 1), stream=8),),
)
_WHERE = Op("where", (Arg("read"), Arg("position")), (1, 1, 1))
"""What is given another number in each pass; so few of these that they cannot outvote the rest."""
_BEFORE = (
    Op("gather", (Arg("write"), Arg("input"), Arg("weight"), Arg("i32", TOKENS)), (TOKENS, 1, 1)),
    Op("slots", (Arg("input"), Arg("i32", TOKENS)), (TOKENS.over(256), 1, 1)),
)
_AFTER = (
    Op("head", (Arg("write"), Arg("read"), Arg("weight")), (256, 1, 1)),
    Op("best", (Arg("write"), Arg("read")), (1, 1, 1)),
    Op("last", (Arg("write"), Arg("read")), (1, 1, 1), thread=2, stream=9),
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program whose layers hold at least NORM, and whose passes begin and end with something else."""
    parts = [*draw(st.lists(st.sampled_from(_PARTS), max_size=6)), (NORM,), *draw(st.sampled_from(((), ((_WHERE,),))))]
    layer = [op for part in draw(st.permutations(parts)) for op in part]
    before = draw(st.lists(st.sampled_from(_BEFORE), min_size=1, max_size=2, unique=True))
    after = draw(st.lists(st.sampled_from(_AFTER), min_size=1, max_size=3, unique=True))
    return Program(tuple(before), tuple(layer), draw(st.integers(3, 6)), (NORM, *after))


behaviours = st.builds(
    Behaviour,
    seed=st.integers(0, 2**16),
    initialise=st.booleans(),
    disturb=st.sampled_from((0.0, 0.3)),
    late=st.sampled_from((0.0, 0.3)),
    noise=st.booleans(),
    copies=st.booleans(),
    partial=st.integers(0, 2),
    graph=st.booleans(),
)

sizes = st.lists(st.sampled_from((1, 1, 1, 2, 5, 16, 34, 85, 175, 2048)), min_size=8, max_size=16).filter(
    lambda counts: len(set(counts)) > 3
)
"""The token counts of passes, some often, several different ones."""
