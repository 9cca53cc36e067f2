"""Compiled chat templates: code that counts steps, and checks every value that may grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, optimizeconst

_NODES: Final = 8
"""Expressions of one statement per step."""
_NESTED: Final = ("body", "else_")
"""Statements within a statement: their steps are counted where they run."""


class Code(CodeGenerator):
    """Calls the environment's `step` at the beginning of each block and iteration, and its `made` and `joined` for
    literals, slices and concatenations."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        statements = list(nodes)
        self.writeline(f"environment.step({1 + sum(map(_steps, statements))})")
        super().blockvisit(statements, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        if node.test is not None:  # it is also evaluated for elements that the loop's body skips
            step = nodes.EnvironmentAttribute(f"stepped({_steps(node.test)})")
            node.test = nodes.And(step, node.test).set_environment(self.environment).set_lineno(node.lineno)
        super().visit_For(node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._making(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._making(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "store":
            super().visit_Tuple(node, frame)
        else:
            self._making(super().visit_Tuple, node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            self._making(super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)

    def _making(self, visit: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame) -> None:
        self.write("environment.made(")
        visit(node, frame)
        self.write(")")

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.joined(context.eval_ctx.autoescape, (")
        for each in node.nodes:
            self.visit(each, frame)
            self.write(", ")
        self.write("))")


def _steps(node: nodes.Node) -> int:
    """The steps of a statement or an expression, without the statements in it."""
    count, waiting = 0, [node]
    while waiting:
        count += 1
        waiting += waiting.pop().iter_child_nodes(exclude=_NESTED)
    return 1 + count // _NODES
