"""Files with what a cluster holds: only who wrote one may read it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write(file: Path, data: bytes) -> None:
    """Write a file that only we can read, whoever could read one of that name before. Raises `OSError` and leaves that one as it was."""
    place = file.resolve()
    if place.exists() and not place.is_file():
        place.write_bytes(data)  # a pipe or a device keeps nothing
        return
    # Made anew and put in its place: nobody has the old one open, and nobody ever reads a half.
    handle, made = tempfile.mkstemp(prefix=f".{place.name[:100]}-", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            os.fchmod(out.fileno(), 0o600)
            out.write(data)
        Path(made).replace(place)
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong before is what is told
            Path(made).unlink()
        raise
