#!/usr/bin/env python3
"""Writes the Python side of the kernels' ABI, constants, enumerations, structs and functions, from kernels/run/abi.h.

python tools/dev/make_abi.py            writes it
python tools/dev/make_abi.py --check    exit status 1 where it is not what the header says

The file is kept rather than read out of the header at import: the header is not in the wheel, types are known to mypy, and
an import parses nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2] / "circle_train/backends/native"
HEADER = next((NATIVE / "kernels").rglob("abi.h"))
TARGET = next(NATIVE.rglob("abi.py"))
SCALARS = {"int32_t": "c_int32", "int64_t": "c_int64", "float": "c_float", "void": "None"}
HEAD = '''"""The ABI of kernels/run/abi.h in ctypes; written by tools/dev/make_abi.py."""

from __future__ import annotations

import enum
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_void_p

'''


def class_name(name: str) -> str:
    """ct_conv_args is ConvArgs."""
    return "".join(word.capitalize() for word in name.removeprefix("ct_").split("_"))


def ctype(text: str, structs: list[str]) -> str:
    """The ctypes expression for a C type as fields, parameters and results have it."""
    base, star = text.replace("const", "").replace("volatile", "").strip().rstrip("*").strip(), "*" in text
    if base in structs:
        return f"POINTER({class_name(base)})" if star else class_name(base)
    if star:
        return "c_char_p" if base == "char" else "c_void_p"
    return SCALARS[base]


def shared_words(names: list[str]) -> str:
    """What all names begin with."""
    columns = zip(*(name.split("_") for name in names), strict=False)
    return "".join(
        f"{words[0]}_" for words in itertools.takewhile(lambda words: len(set(words)) == 1, columns)
    )


def constants(text: str) -> Iterator[str]:
    for name, value in re.findall(r"#define CT_(\w+) (\d+)\n", text):
        yield f"{name} = {value}"


def enumerations(text: str) -> Iterator[str]:
    for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        members = re.findall(r"(CT_\w+) = (-?\d+)", body) or kernels(text)
        prefix = shared_words([member for member, _ in members])
        values = [int(value) for _, value in members]
        kind = "IntFlag" if values == [1 << i for i in range(len(values))] else "IntEnum"
        lines = [f"    {member.removeprefix(prefix)} = {value}" for member, value in members]
        kept = [line for line in lines if not line.startswith("    COUNT ")]
        yield "\n".join([f"class {class_name(name)}(enum.{kind}):", f'    """{name}."""', "", *kept])


def kernels(text: str) -> list[tuple[str, int]]:
    return [(f"CT_{name}", i) for i, (name, _) in enumerate(arguments(text))]


def arguments(text: str) -> list[tuple[str, str]]:
    """Each kernel of CT_KERNELS and its struct."""
    return re.findall(r"  X\((\w+), \w+, \w+, (\w+)\)", text)


def structures(text: str) -> Iterator[str]:
    known: list[str] = []
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        lines = []
        for kind, field, extent in re.findall(r"^\s*([\w *]+?[ *])(\w+)(?:\[CT_(\w+)\])?;", body, flags=re.M):
            found = ctype(kind, known) + (f" * {extent}" if extent else "")
            lines.append(f'        ("{field}", {found}),')
        known.append(name)
        head = [f"class {class_name(name)}(Structure):", f'    """{name}."""', "", "    _fields_ = ["]
        yield "\n".join([*head, *lines, "    ]"])


def functions(text: str) -> Iterator[str]:
    structs = re.findall(r"typedef struct (\w+) \{", text)
    for result, name, parameters in re.findall(
        r"^CT_API ([\w ]+?\*?) ?(ct_\w+)\((.*?)\);", text, re.S | re.M
    ):
        given = [re.sub(r"\w+$", "", p.strip()) for p in parameters.split(",") if p.strip() != "void"]
        types = ", ".join(ctype(p, structs) for p in given)
        own = "c_void_p" if result == "ct_workers*" else ctype(result, structs)
        yield f'    ("{name}", {own}, ({types}{"," if len(given) == 1 else ""})),'


def made(header: str) -> str:
    """The module for a header."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    parts = [*enumerations(text), *structures(text)]
    rows = [f"    Kernel.{kernel}: {class_name(args)}," for kernel, args in arguments(text)]
    table = [
        "ARGS: dict[Kernel, type[Structure]] = {",
        *rows,
        "}",
        '"""The struct that each kernel takes."""',
    ]
    kind = "tuple[tuple[str, type | None, tuple[type, ...]], ...]"
    exported = [f"FUNCTIONS: {kind} = (", *functions(text), ")", '"""Name, result, parameters."""']
    digest = hashlib.sha256(header.encode()).hexdigest()[:7].upper()  # as in CMakeLists.txt
    blocks = [
        "\n".join([f"ABI_VERSION = 0x{digest}", *constants(text)]),
        *parts,
        "\n".join([*table, *exported]),
    ]
    return HEAD + "\n\n\n".join(blocks) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args()
    text = made(HEADER.read_text(encoding="utf-8"))
    if not options.check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") != text:
        print(f"{TARGET.name} is not what {HEADER.name} says: run python tools/dev/make_abi.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
