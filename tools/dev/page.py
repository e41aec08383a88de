"""Runs a page of the documentation with other constants than it has, in an empty folder: figures that would take CI minutes.

    python tools/dev/page.py docs/tutorials/fleet_sensors.md ROUNDS=40
    python tools/dev/page.py docs/tutorials/fleet_photographs.md PHONES=1000

Its Python blocks run one after the other; pictures and whatever else they make stay in the folder that is named at the end.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = re.compile(r"(<!-- not run: [^>]+-->\n)?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def with_constants(code: str, constants: dict[str, str]) -> str:
    """The code, in which each of these is another number."""
    for name, value in constants.items():
        code, count = re.subn(rf"^{name} = \d+", f"{name} = {value}", code, flags=re.MULTILINE)
        if count != 1:
            raise SystemExit(f"the page sets {name} {count} times, expected once")
    return code


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("constants", nargs="*", metavar="NAME=NUMBER")
    options = parser.parse_args()
    page = options.page.resolve()
    found = PYTHON.findall(page.read_text(encoding="utf-8"))
    code = "\n".join(block for skipped, block in found if not skipped)
    code = with_constants(code, dict(one.split("=", 1) for one in options.constants))
    top = Path(tempfile.mkdtemp(prefix=page.stem))
    (top / "page").mkdir()
    (top / "shared").symlink_to(ROOT.parent / "shared")
    for folder in ("tests", "tools", "docs"):
        (top / "page" / folder).symlink_to(ROOT / folder)
    os.chdir(top / "page")
    begun = time.process_time()
    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
    print(f"{time.process_time() - begun:.0f} s of processor time; files are in {top / 'page'}")


if __name__ == "__main__":
    main()
