"""ONERT's onert_train; the command `onert_train` without installing it."""

import sys

from circle_train.cli.onert.train import main

if __name__ == "__main__":
    sys.exit(main())
