"""Where torch is not installed, the training script says so, and what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "train_draft.py"
WITHOUT = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"


def test_what_is_missing_is_named() -> None:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); {WITHOUT}", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: torch is not installed; pip install torch")
