"""The command `kern`: parsing, rendering and exit codes; everything else is done by the packages below."""

from __future__ import annotations

import gc
import os
import sys

from kern.manifest.errors import KernError


def main() -> None:
    """Run the command line. Exits 0 (done), 1 (the answer is no), 2 (usage) or 130 (interrupted)."""
    # Looking for pydantic plugins means reading the metadata of every installed package.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    # A manifest is tens of thousands of objects and none of them garbage: searching them costs a tenth of `verify`.
    gc.set_threshold(200_000, 50, 50)
    from kern.cli.app import app
    from kern.cli.terminal import printable

    try:
        app(prog_name="kern")
    except KernError as error:
        sys.stdout.flush()
        print(f"kern: {printable(error.message)}", file=sys.stderr)
        if error.help:
            print(f"help: {printable(error.help)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
