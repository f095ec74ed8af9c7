"""The price book in a file, read again whenever it changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from headroom.adapters.prices import Book, parse_book
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.adapters.kube.store import KubePort
    from headroom.model.ports import Clock
    from headroom.runtime.logs import Log

LOOK_SECONDS: Final = 5.0


def read(path: str) -> Book:
    """The prices in a file. Raises `Misconfigured` if it cannot be read at all."""
    try:
        return parse_book(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise Misconfigured(
            f"reading the price book {path}: {why}; give a readable file with --price-book, or none"
        ) from error


async def follow(path: str, port: KubePort, clock: Clock, log: Log) -> None:
    """Keep the port's prices equal to the file's, and say what is wrong with a price book, once each time it changes."""
    said: list[str] = []
    found: Book = ((), [])
    while True:
        problems = []
        if path:
            try:
                found = read(path)
                problems = [f"{path}: {each}" for each in found[1]]
            except Misconfigured as error:
                problems = [f"{error}; the prices read last are kept"]  # a file that is just being replaced
            port.add_prices(found[0])
        problems += port.price_problems
        if problems != said:
            said = problems
            for problem in problems:
                log.warning("a price is left out", why=problem)
        await clock.sleep(LOOK_SECONDS)
