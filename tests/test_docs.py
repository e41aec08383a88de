"""Every code block of the documentation runs.

Python blocks of a page run one after the other in one namespace and an empty folder; shell blocks run too, if they call our
own commands. A page may say, in comments at its top, `<!-- slow -->` (a minute), `<!-- thorough -->` (ten),
`<!-- needs: path, package -->` (skipped with a reason where the path, relative to the repository, or the package is missing).
A block that follows `<!-- not run: why -->` is left out.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import circle_train as ct

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"(<!-- not run: [^>]+-->\n)?^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
OURS = ("circle-train ", "python tools/")


@dataclass(frozen=True)
class Block:
    language: str
    code: str


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [Block(language, code) for skipped, language, code in found if not skipped]


def marks(page: Path) -> list[pytest.MarkDecorator]:
    """Of pages that take long."""
    text = page.read_text(encoding="utf-8")
    if "<!-- thorough -->" in text:
        return [pytest.mark.slow(seconds=600), pytest.mark.thorough]
    return [pytest.mark.slow(seconds=40)] if "<!-- slow -->" in text else []


def missing_needs(page: Path) -> list[str]:
    match = re.search(r"<!-- needs: ([^>]+) -->", page.read_text(encoding="utf-8"))
    needs = [need.strip() for need in match.group(1).split(",")] if match else []
    return [need for need in needs if not _is_there(need)]


def _is_there(need: str) -> bool:
    return (ROOT / need).exists() if "/" in need else importlib.util.find_spec(need) is not None


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=str(p.relative_to(ROOT)), marks=marks(p)) for p in pages()]
)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if absent := missing_needs(page):
        pytest.skip(f"needs {', '.join(absent)}")
    monkeypatch.chdir(tmp_path)
    for folder in ("tests", "tools", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    if (ROOT.parent / "shared").exists() and not (tmp_path.parent / "shared").exists():
        (tmp_path.parent / "shared").symlink_to(ROOT.parent / "shared")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.code, str(page), "exec"), namespace)
        elif block.language in ("sh", "bash", "shell"):
            run_commands(block.code)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose)
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


MEASURED = re.compile(r"^\|.*(?:\d (?:ms|µs|s|MB|MiB|%)\** *\||, (?:ms|MB|MiB) *\|)", re.MULTILINE)
REPEATED_BY = re.compile(
    r"(?:tools/dev|shared/bench)/[a-z0-9_/]+\.py|circle-train |session\.profile\(\)|run as a test|tests/test_security\.py"
)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_repeats_what_was_measured(page: Path) -> None:
    """A section with a table of times, sizes or shares names the command which gives them."""
    text = page.read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        if MEASURED.search(re.sub(r"^```.*?^```", "", section, flags=re.MULTILINE | re.DOTALL)):
            assert REPEATED_BY.search(section), section.partition("\n")[0]


def test_the_commands_that_the_pages_name_are_there() -> None:
    named = {
        name
        for page in pages()
        for name in re.findall(r"\btools/[a-z_/0-9]+\.py", page.read_text(encoding="utf-8"))
    }
    assert named and not [name for name in named if not (ROOT / name).exists()]


def run_commands(code: str) -> None:
    """Run the lines that call us; installing and the like is left to the reader."""
    bin_folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith(OURS):
            done = subprocess.run(
                line, shell=True, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def test_the_api_page_has_every_public_name() -> None:
    headings = set(
        re.findall(r"^### (\S+)$", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    rooms = {name: getattr(ct, name) for name in ct.__all__ if isinstance(getattr(ct, name), ModuleType)}
    wanted = {f"ct.{name}" for name in ct.__all__ if name not in rooms}
    wanted |= {f"ct.{name}.{inner}" for name, room in rooms.items() for inner in room.__all__}
    assert {name for name in wanted - headings if not isinstance(_public(name), ModuleType)} == set()


def _public(name: str) -> object:
    found: object = ct
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found
