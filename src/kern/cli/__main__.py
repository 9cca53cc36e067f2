"""`python -m kern.cli` is `kern`."""

from kern.cli import main

main()
