"""What a process has cost so far, from the kernel's own books."""

import json
import resource
import sys
import time
from pathlib import Path

_STARTED = time.perf_counter()
_begun = 0.0


def begin() -> None:
    """All is imported; from here on the costs are those of reading."""
    global _begun  # noqa: PLW0603 - one process, one account
    _begun = cpu_seconds()


def cpu_seconds() -> float:
    """User and system time of all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_mb() -> float:
    """Memory that is held now, in millions of bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def report(**more: float) -> None:
    """Print one line that the benchmark reads."""
    cost = {
        "cpu": cpu_seconds() - _begun,
        "start": _begun,
        "resident": resident_mb(),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "wall": time.perf_counter() - _STARTED,
    }
    sys.stdout.write(json.dumps(cost | more) + "\n")
    sys.stdout.flush()
