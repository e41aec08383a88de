"""ONERT's generate_datafile; the command `generate_datafile` without installing it."""

import sys

from circle_train.cli.onert.generate_datafile import main

if __name__ == "__main__":
    sys.exit(main())
