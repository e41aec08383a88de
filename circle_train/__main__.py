"""`python -m circle_train COMMAND …`."""

import sys

from circle_train.cli.main import main

sys.exit(main())
