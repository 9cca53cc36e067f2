"""Counting what was recorded: the recorded program may have written into its own folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from kern.capture import summarize

STRANGE = [
    b'{"record":"kernel"}',
    b'{"record":"kernel",',
    b'{"record":"kernel","module":[],"kernel":{}}',
    b'{"record":"process","command":7}',
    b'{"record":"process","command":' + b"[" * 100_000,
    b'{"record":"launch","kernel":' + b"9" * 100_000 + b",",
    b'{"record":"kernel","kernel":' + b"9" * 100_000 + b"}",
    b'{"record":"' + b"x" * 2**24 + b'"',
]


@pytest.mark.parametrize("line", STRANGE, ids=[line[:40].decode() for line in STRANGE])
def test_a_line_that_is_not_the_recorders_is_counted_at_most(tmp_path: Path, line: bytes) -> None:
    folder = tmp_path / "pid-1"
    folder.mkdir()
    good = b'{"record":"launch","t":1,"kernel":0,"grid":[1,1,1]}\n'
    (folder / "launches.jsonl").write_bytes(b'{"record":"kernel","kernel":0,"module":"ab"}\n' + line + b"\n" + good)
    (summary,) = summarize(tmp_path)
    assert summary.launches in (1, 2)
    assert summary.attributed == 1
