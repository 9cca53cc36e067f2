"""The command `kern`, also as `python -m kern`.

Until the command line handles interrupts, one ends the process as it ends any other: with no traceback.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from kern.cli import main

if __name__ == "__main__":
    main()
