"""ONERT's circle_plus_gen; the command `circle_plus_gen` without installing it."""

import sys

from circle_train.cli.onert.circle_plus_gen import main

if __name__ == "__main__":
    sys.exit(main())
