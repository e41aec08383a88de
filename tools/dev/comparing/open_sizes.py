"""Random ONNX graphs with open sizes: outputs as onnxruntime's at three sizes each, derived sizes as the run's.

python tools/dev/comparing/open_sizes.py [--first 0] [--cases 1000]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "nets"))
from open_graphs import findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--cases", type=int, default=1000, help="graphs that onnxruntime runs")
    options = parser.parse_args()
    seed, compared, wrong = options.first, 0, 0
    while compared < options.cases:
        found = findings(seed)
        seed += 1
        if found is None:
            continue
        compared += 1
        wrong += bool(found)
        for line in found:
            print(line[:400], flush=True)
    print(f"{compared} graphs (seeds {options.first} to {seed - 1}), {wrong} of them with findings")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
