"""How much memory there is to be had: what the machine has left, within what this process's group may take."""

from __future__ import annotations

import os

MEMINFO, OWN_GROUPS, GROUPS = "/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup"


def available_bytes() -> int | None:
    """None where the system does not say."""
    found = [free for free in (_of_machine(), *_of_groups()) if free is not None]
    return min(found, default=None)


def _of_machine() -> int | None:
    try:
        lines = _text(MEMINFO).splitlines()
    except OSError:
        return None
    sizes = {line.partition(":")[0]: line.split()[1] for line in lines if len(line.split()) > 1}
    return int(sizes["MemAvailable"]) * 1024 if "MemAvailable" in sizes else None


def _of_groups() -> list[int | None]:
    """Of each group that the process is in, from its own up to the root: version 2's files, else version 1's."""
    try:
        lines = _text(OWN_GROUPS).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        top = os.path.join(GROUPS, "memory") if kinds else os.fspath(GROUPS)
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if kinds else ("memory.max", "memory.current")
        )
        place = os.path.join(top, path.strip("/"))
        while place.startswith(top):
            found.append(_left(place.rstrip("/"), *names))
            place = os.path.dirname(place.rstrip("/"))
    return found


def _text(path: str | os.PathLike[str]) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _left(group: str, limit: str, used: str) -> int | None:
    """What a group may still take; of what it has, files that are only cached count as free."""
    try:
        most = int(_text(f"{group}/{limit}"))
        taken = int(_text(f"{group}/{used}"))
        statistics = _text(f"{group}/memory.stat").split()
    except (OSError, ValueError):  # no such group here, or "max"
        return None
    pairs = dict(zip(statistics[::2], statistics[1::2], strict=False))
    cached = int(pairs.get("inactive_file", pairs.get("total_inactive_file", 0)))
    return max(most - taken + cached, 0)
