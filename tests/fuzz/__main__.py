"""`python -m fuzz`: run the fuzz targets for some minutes, or inputs that were found before once more."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from fuzz.campaign import fuzz, save, table
from fuzz.targets import TARGETS
from fuzz.worker import outcome_of

FINDINGS = Path("build/fuzz")


def main() -> int:
    """Exit status 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all without")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, all targets together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="a new one without")
    parser.add_argument("--again", type=Path, nargs="+", default=[], metavar="FILE", help="run findings again")
    options = parser.parse_args()
    if unknown := set(options.names) - TARGETS.keys():
        parser.error(f"unknown target {', '.join(sorted(unknown))}")
    if options.again:
        return again(options.again)
    print(f"seed {options.seed}, {options.minutes:g} minutes", flush=True)
    targets = [TARGETS[name] for name in options.names or TARGETS]
    campaigns = fuzz(targets, options.seed, minutes=options.minutes, grow=True)
    print(table(campaigns))
    for path in save(campaigns, FINDINGS):
        print(f"{path}: {path.with_suffix('.txt').read_text().splitlines()[0]}")
    return int(any(campaign.found for campaign in campaigns))


def again(paths: list[Path]) -> int:
    """Run inputs in this process, without limits: the target is the first word of a file's name."""
    found = 0
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            outcome, kind, details = outcome_of(TARGETS[path.name.partition("-")[0]], path.read_bytes(), Path(folder))
        print(f"{path}: {outcome if kind is None else kind}\n{details}")
        found += kind is not None
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
