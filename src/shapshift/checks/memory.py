"""Memory that is available to this process."""

import os
from collections.abc import Iterator
from pathlib import Path

# By kind of control group: the mount, and the files of the limit, the use, and the part of it that is cached files.
_GROUPS = {
    "": [
        (mount, "memory.max", "memory.current", "inactive_file") for mount in ("sys/fs/cgroup", "sys/fs/cgroup/unified")
    ],
    "memory": [
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
}


def available_memory(root: str = "/") -> int:
    """Bytes that this process could allocate now; more than any system has if unknown.

    The minimum of what is left by the system, by each control group above the process (a container has one) and by the
    limit of its address space (``ulimit -v``).

    Parameters
    ----------
    root : str, default="/"
        Folder that holds ``proc`` and ``sys``.
    """
    folder = Path(root)
    return max(min([2**62, *_of_system(folder), *_of_groups(folder), *_of_address_space(folder)]), 0)


def _of_system(root: Path) -> Iterator[int]:
    try:
        yield 1024 * _entry(root / "proc/meminfo", "MemAvailable:")
    except (OSError, LookupError, ValueError):
        try:
            yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return


def _of_groups(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        for mount, limit, use, cached in _GROUPS.get("memory" if "memory" in kinds.split(",") else kinds, []):
            # A container may see its own group at the mount, whatever its path is outside.
            inner = Path(path.lstrip("/"))
            for folder in (root / mount / part for part in (inner, *inner.parents)):
                try:
                    left = int((folder / limit).read_text()) - int((folder / use).read_text())
                    yield left + _entry(folder / "memory.stat", cached)
                except (OSError, LookupError, ValueError):  # no such group, or "max"
                    continue


def _of_address_space(root: Path) -> Iterator[int]:
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        pages = int((root / "proc/self/statm").read_text().split()[0])
    except (ImportError, OSError, ValueError):
        return
    if limit != resource.RLIM_INFINITY:
        yield limit - pages * resource.getpagesize()


def _entry(file: Path, name: str) -> int:
    """Return the number after a name."""
    for line in file.read_text().splitlines():
        found, _, rest = line.partition(" ")
        if found == name:
            return int(rest.split()[0])
    raise LookupError(name)
