"""Where a process begins: as `headroom`, as `kubectl headroom`, or to complete a command line of either."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line; Ctrl-C also ends it quietly while it is still being loaded."""
    try:
        from headroom.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def complete_for_kubectl() -> None:
    """Answer kubectl, which asks a program of this name what may follow `kubectl headroom WORDS`."""
    try:
        from headroom.cli.completion import answer_kubectl

        answer_kubectl(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
