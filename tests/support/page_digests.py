"""Which pages of a state a call changed, by digests of the pages before and after it.

    changed = changed_pages(executable, lambda: executable.run("decode", values), "kv")
    assert changed <= set(pages_of_this_call)

A page of a `bytes_per_token` state is its indivisible unit: `granule` tokens, `bytes_per_token × granule` bytes, page i
after page i - 1, all layers of a token in one page. A page of a `bytes` state is the block of one sequence. Reading a
state waits for everything submitted before, so the call may return before it has finished.

A page that was overwritten with the bytes that it had counts as unchanged. A test of "nothing else is written" must
therefore begin with pages that hold other bytes than a wrong write would leave: fill them by earlier calls with other
tokens, not by `clear`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from kern.manifest.types import State
from kern.runtime.executable import Executable

Digests = tuple[bytes, ...]
"""A digest for each page of a state, in order."""


def page_bytes(state: State) -> int:
    """The size of a page of a state; see above."""
    if state.bytes is not None:
        return state.bytes
    assert state.bytes_per_token is not None
    return state.bytes_per_token * state.granule


def page_digests(executable: Executable, state: str) -> Digests:
    """The digests of all pages of a state, once everything submitted has run."""
    content = executable.read_state(state).tobytes()
    size = page_bytes(executable.manifest.states[state])
    assert len(content) % size == 0
    return tuple(hashlib.sha256(content[at : at + size]).digest() for at in range(0, len(content), size))


def differing(before: Digests, after: Digests) -> set[int]:
    """The pages whose digests are not equal."""
    return {page for page, (one, other) in enumerate(zip(before, after, strict=True)) if one != other}


def changed_pages(executable: Executable, call: Callable[[], object], state: str) -> set[int]:
    """The pages of `state` that `call` changed."""
    before = page_digests(executable, state)
    call()
    return differing(before, page_digests(executable, state))
