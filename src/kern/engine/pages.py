"""The pages of an executable's states: which are free, and which are in use."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kern.manifest.counts import counted
from kern.manifest.errors import KernError, variant

PoolExhausted = variant(KernError, "pool-exhausted", "More pages were requested than are free.")
WrongPage = variant(KernError, "wrong-page", "A page was released that is not in use.")


class PagePool:
    """Pages 0 … `size` - 1. The first ones allocated are 0, 1, 2, …; then the page that has been free the longest."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = deque(range(size))
        self._used = bytearray(size)

    @property
    def free(self) -> int:
        """The number of free pages."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """`count` pages that were free, now in use. Raises PoolExhausted, and allocates nothing, if fewer are free."""
        if count > self.free:
            raise PoolExhausted(
                f"{counted(count, 'page')} were requested and {self.free} of {self.size} are free",
                "release pages first, or load with a larger pool_tokens",
            )
        pages = [self._free.popleft() for _ in range(count)]
        for page in pages:
            self._used[page] = 1
        return pages

    def release(self, pages: Iterable[int]) -> None:
        """Make `pages` free again. Raises WrongPage for one that is not in use; those before it are released."""
        for page in pages:
            if not 0 <= page < self.size or not self._used[page]:
                raise WrongPage(f"page {page} of {self.size} is not in use", "release each allocated page once")
            self._used[page] = 0
            self._free.append(page)
