"""Files that lie behind a model's flatbuffer, as TFLite's metadata have it: an archive without compression."""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Mapping

from circle_train.errors import shown
from circle_train.ir.tensor_type import Array
from circle_train.printable import printable

LARGEST = 4 << 20
"""Bytes behind the flatbuffer that are looked at; labels and vocabularies are far smaller."""
_END = b"PK\x05\x06"
_LONGEST_END = 22 + 0xFFFF
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)


def unpack(data: Array) -> dict[str, bytes]:
    """The files at the end of a model file, by name; what is damaged, packed or too large is left out, and said so."""
    tail = data[-LARGEST:].tobytes()
    if _END not in tail[-_LONGEST_END:]:
        return {}
    import zipfile  # and five packers behind it: an eighth of our import, for the few files that have an archive

    damages = (zipfile.BadZipFile, OSError, ValueError, OverflowError, RuntimeError, EOFError, struct.error)
    try:
        with zipfile.ZipFile(io.BytesIO(tail)) as archive:
            listed = archive.infolist()
            plain = [one for one in listed if one.compress_type == zipfile.ZIP_STORED]
            if packed := [one.filename for one in listed if one not in plain]:
                _warn(f"'{packed[0]}' among them is compressed and left out")
            if sum(one.file_size for one in plain) > len(tail):
                raise ValueError("their directory names the same bytes often")
            return {one.filename: archive.read(one) for one in plain}
    except damages as error:
        _warn(f"they are damaged ({shown(error)}) and left out, labels too; get an intact copy")
        return {}


def _warn(found: str) -> None:
    warnings.warn(printable(f"files behind the model: {found}"), stacklevel=2)


def pack(files: Mapping[str, bytes]) -> bytes:
    """The archive; the same bytes for the same files."""
    if not files:
        return b""
    import zipfile

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, raw in files.items():
            archive.writestr(zipfile.ZipInfo(name, _FIRST_DAY), raw)
    return content.getvalue()
