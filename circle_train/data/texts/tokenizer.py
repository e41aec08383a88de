"""What cuts a text into numbers: the package tokenizers, which a hostile file of its own would end, or keep at it for ever."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from circle_train.errors import DataError, shown
from circle_train.ir.mapped import require_file

LARGEST_FILE = 64 << 20
"""Bytes of a tokenizer.json or vocab.txt."""
LARGEST_TEXT = 1 << 20
"""Characters of a text that are looked at; a sample has far fewer tokens."""
LONGEST_PADDING = 1 << 16
GROWTH = 64
"""How many times as long a text may become by what the file replaces."""
LONGEST_WORD = 10_000
"""Characters of a word, whose pieces are looked for in steps of its length squared."""
REMEDY = "give the model's own tokenizer.json or vocab.txt"


class Tokenizer:
    """The vocabulary of a file."""

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise DataError("texts need the tokenizers package: pip install 'circle-train[text]'") from error
        self.path = path
        with _refusing(f"'{path}' cannot be read as a tokenizer"):
            require_file(path)
            if path.stat().st_size > LARGEST_FILE:
                raise ValueError(f"{path.stat().st_size:,} bytes, expected at most {LARGEST_FILE:,}")
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".json":
                _refuse_bombs(json.loads(text))
                self._cutter = tokenizers.Tokenizer.from_str(text)
            else:
                self._cutter = _word_pieces(tokenizers, text.splitlines())
            self.padding = int(self._cutter.token_to_id("[PAD]") or self._cutter.token_to_id("<pad>") or 0)

    def __call__(self, text: str) -> list[int]:
        """The text's tokens."""
        with _refusing(f"'{self.path}' does not take a text"):
            found: list[int] = self._cutter.encode(text[:LARGEST_TEXT]).ids
        return found


def _word_pieces(tokenizers: Any, words: list[str]) -> Any:
    """BERT's, of its list of words."""
    pieces = tokenizers.models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    cutter = tokenizers.Tokenizer(pieces)
    is_cased = any(word[:1].isupper() for word in words)
    cutter.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=not is_cased)
    cutter.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [(name, words.index(name)) for name in ("[SEP]", "[CLS]")]
    cutter.post_processor = tokenizers.processors.BertProcessing(*ends)
    return cutter


def _refuse_bombs(said: Any) -> None:
    """ValueError for numbers by which the package takes all memory, which ends the process, or all time."""
    padding, model = said.get("padding") or {}, said.get("model") or {}
    strategy = padding.get("strategy")
    fixed = strategy.get("Fixed", 0) if isinstance(strategy, dict) else 0
    bounds = {
        "padding": (max(fixed, padding.get("pad_to_multiple_of") or 0), LONGEST_PADDING),
        "max_input_chars_per_word": (model.get("max_input_chars_per_word", 0), LONGEST_WORD),
        "what it replaces": (_growth(said.get("normalizer")), GROWTH),
    }
    for name, (found, most) in bounds.items():
        if found > most:
            raise ValueError(f"{name} is {found:,}, expected at most {most:,}")
    for part in _parts(said.get("normalizer")):
        if part.get("type") == "Precompiled":
            raw = base64.b64decode(part["precompiled_charsmap"])
            if int.from_bytes(raw[:4], "little") > len(raw) - 4:
                raise ValueError("its table of characters is cut off")


def _growth(normalizer: Any) -> int:
    """How many times as long a text becomes at most."""
    grown = 1
    for part in _parts(normalizer):
        pattern, content = part.get("pattern"), part.get("content", part.get("prepend", ""))
        known = pattern.get("String", "") if isinstance(pattern, dict) else ""
        grown *= max(-(-len(content) // max(len(known), 1)) + (not known and bool(content)), 1)
    return grown


def _parts(normalizer: Any) -> Iterator[dict[str, Any]]:
    if isinstance(normalizer, dict):
        yield normalizer
        for inner in normalizer.get("normalizers", ()):
            yield from _parts(inner)


@contextmanager
def _refusing(place: str) -> Iterator[None]:
    """The package raises bare exceptions, and where it panics what is no exception by Python's classes."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(f"{place} ({shown(error)}); {REMEDY}") from None
