"""The fuzzer's parts, which take the tests' models and the installed package, else this tree."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "nets"))
sys.path.append(str(ROOT))  # behind the installed package, which has the engine that a clone has not
