"""What a process has cost so far, from the kernel's own books."""

import json
import resource
import sys
import time
from pathlib import Path

_STARTED = time.perf_counter()


def cpu_seconds() -> float:
    """User and system time of all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_mib() -> float:
    """Memory that is held now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def report(**more: float) -> None:
    """Print one line that the benchmark reads."""
    cost = {
        "cpu": cpu_seconds(),
        "resident": resident_mib(),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "wall": time.perf_counter() - _STARTED,
    }
    sys.stdout.write(json.dumps(cost | more) + "\n")
    sys.stdout.flush()
