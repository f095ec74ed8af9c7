"""What a command draws on a terminal of its own, as a page that a browser can be shown."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Sequence
from io import StringIO
from typing import Final

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 130, 42
QUIET_SECONDS: Final = 3.0
"""A first screen is whole when nothing more came for so long."""
FIRST_SECONDS: Final = 60.0
_CONTROLS: Final = re.compile(rb"\x1b\[[0-9;?]*[A-LN-Za-ln-z]|\x1b[=>]|\r")
"""All that a terminal is told but colours."""
PAGE: Final = """<!doctype html><meta charset="utf-8">
<style>body {{ margin: 0; padding: 1rem; width: fit-content; background: #16181d; color: #e7eaee; }}
pre {{ margin: 0; font: 14px/1.3 "DejaVu Sans Mono", monospace; }}</style>
<pre>{code}</pre>"""


def screen_of(command: Sequence[str]) -> bytes:
    """The first screen that a command draws; it is told `q` afterwards."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    found, patience = b"", FIRST_SECONDS
    while select.select([ours], [], [], patience)[0]:
        found, patience = found + os.read(ours, 65536), QUIET_SECONDS
    os.write(ours, b"q")
    process.wait(10)
    os.close(ours)
    return found


def page_of(drawn: bytes) -> str:
    """The page."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(_CONTROLS.sub(b"", drawn).decode(errors="replace")))
    return console.export_html(inline_styles=True, code_format=PAGE)
