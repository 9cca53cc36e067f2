"""`python -m kern` is `kern`."""

from kern.cli import main

main()
