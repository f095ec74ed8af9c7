"""Reads tables of comma-separated values, plain or gzip, row by row; a row that cannot be understood is passed over and counted."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import IO, Final

from headroom.model.errors import Misconfigured

MOST_EXAMPLES: Final = 3
_GZIP: Final = b"\x1f\x8b"
_PACE: Final = 20_000
"""Rows between two words of progress."""

Told = Callable[[int], None]
"""Told how many bytes of the file are done."""


class TraceTable:
    """One file: its rows by their columns, and what was passed over."""

    def __init__(self, path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> None:
        self.path, self.rows, self.bad = path, 0, 0
        self.examples: list[str] = []
        """What is wrong with the first bad rows, with their lines."""
        self._columns, self._optional = columns, optional

    def read(self, told: Told = lambda _: None) -> Iterator[tuple[str, ...]]:
        """The cells of each row in the order of the columns, those that the file does not have as empty text."""
        with _opened(self.path) as (text, raw):
            reader = csv.reader(text)
            places = self._places(next(reader, []))
            last, cells = max(places), itemgetter(*places)
            while True:
                try:
                    for row in reader:
                        self.rows += 1
                        if self.rows % _PACE == 0:
                            told(raw.tell())
                        row.append("")  # for the columns that it does not have
                        if len(row) > last + 1:
                            yield cells(row)
                        else:
                            self.pass_over(f"it has {len(row) - 1} columns")
                except csv.Error as error:  # the reader goes on with the next line
                    self.rows += 1
                    self.pass_over(str(error))
                else:
                    return

    def pass_over(self, why: str) -> None:
        """Count the row that was read last as one that says nothing."""
        self.bad += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(f"{self.path}:{self.rows + 1}: {why}")

    def _places(self, head: Sequence[str]) -> list[int]:
        """Where the columns stand; a cell that every row gets at its end takes the place of one that is missing."""
        names = [name.strip().lstrip("\ufeff") for name in head]
        missing = [name for name in self._columns if name not in names]
        if missing:
            found = ", ".join(names)[:200] or "no first line"
            raise Misconfigured(
                f"reading {self.path}: the column {missing[0]} is missing; its first line must name "
                f"{', '.join(self._columns)}, and is: {found}"
            )
        return [names.index(name) if name in names else -1 for name in (*self._columns, *self._optional)]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[str], IO[bytes]]]:
    """The text, unpacked where it is packed, and the file itself, which knows how far it was read."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            with io.TextIOWrapper(
                gzip.GzipFile(fileobj=raw) if packed else raw, encoding="utf-8", errors="replace", newline=""
            ) as text:
                yield text, raw
    except IsADirectoryError:
        raise Misconfigured(f"reading {path}: it is a folder; give a file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Misconfigured(f"reading {path}: it cannot be unpacked ({error}); copy it again") from error
    except OSError as error:
        raise Misconfigured(f"reading {path}: {error.strerror or error}; check the path and its rights") from error
