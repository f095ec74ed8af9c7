"""Files with what a cluster holds: only who wrote one may read it."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from headroom.model.errors import Misconfigured


def prepare(file: Path | None) -> None:
    """Make sure that a file can be written, before long work whose result it takes. Raises `Misconfigured` if not."""
    if file is None:
        return
    try:
        place = file.resolve()
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if place.exists() and not place.is_file():
            return  # a pipe or a device: opening it might wait for who reads
        handle, made = tempfile.mkstemp(prefix=f".{place.name[:100]}-", dir=place.parent)
        os.close(handle)
        Path(made).unlink()
    except OSError as error:
        raise Misconfigured(
            f"writing {file}: {error.strerror or error}; make its folder, or give another file"
        ) from error


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
