"""Structured logs: a constant message, facts as fields, one JSON object a line (or coloured text on a terminal)."""

from __future__ import annotations

import logging
import sys
from typing import Any, Protocol, TextIO, cast


class Log(Protocol):
    """The few calls that the runtime makes."""

    def debug(self, event: str, **facts: Any) -> Any: ...
    def info(self, event: str, **facts: Any) -> Any: ...
    def warning(self, event: str, **facts: Any) -> Any: ...
    def error(self, event: str, **facts: Any) -> Any: ...
    def exception(self, event: str, **facts: Any) -> Any: ...


def make(level: str = "info", form: str = "", stream: TextIO | None = None) -> Log:
    """A logger; `form` is json or text, by default text on a terminal and json elsewhere."""
    import structlog  # noqa: PLC0415 - it brings a terminal library along; who logs nothing need not wait for it

    out = stream or sys.stderr
    is_text = form == "text" or (not form and out.isatty())
    render: Any = structlog.dev.ConsoleRenderer(colors=out.isatty()) if is_text else structlog.processors.JSONRenderer()
    processors = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        *([] if is_text else [structlog.processors.format_exc_info]),
        render,
    ]
    return cast(
        Log,
        structlog.wrap_logger(
            structlog.PrintLogger(out),
            processors=processors,
            wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        ),
    )


class Silent:
    """A log that nobody reads."""

    def debug(self, event: str, **facts: Any) -> None:
        """Say nothing."""

    info = warning = error = exception = debug
