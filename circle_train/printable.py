"""Text that came with a file, made fit for a terminal, a log or a page.

Names in models, checkpoints and settings are anything that somebody wrote there: escape sequences that move the cursor, line
ends that fake a message of ours, marks that turn the reading direction, halves of characters that no terminal takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

LONG = 48
"""Letters of a name that a table for people shows."""


def printable(text: str) -> str:
    """The text on one line, with whatever does not print as its escape: \\x1b, \\n, \\u202e."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def brief(name: str) -> str:
    """A name by its ends where it is long: Keras joins those of all operators that became one."""
    return name if len(name) <= LONG else f"{name[: LONG // 2 - 1]}…{name[-LONG // 2 :]}"


def lines(texts: Iterable[str]) -> str:
    """One line for each text."""
    return "\n".join(map(printable, texts))


def as_html(text: str) -> str:
    """The text as it stands between two tags or in an attribute's quotes."""
    return _escape(printable(text))


def as_table(text: str) -> str:
    """Lines as a notebook shows them: as they are, in letters of one width."""
    return f"<pre>{_escape(text)}</pre>"


def _escape(text: str) -> str:
    import html  # the names of all its letters, of which terminals want none

    return html.escape(text)


def as_json(value: Any) -> str:
    """JSON for people and machines: letters of all alphabets as they are, the rest escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
