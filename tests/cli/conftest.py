"""Runs commands in this process, as the installed program would."""

import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from headroom.cli.main import main


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Headroom = Callable[..., Done]


@pytest.fixture
def headroom(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Headroom:
    """`headroom("check", "a.yaml", stdin=b"...")`: the exit code and what was printed."""

    for name in [name for name in os.environ if name.startswith("HEADROOM_")]:
        monkeypatch.delenv(name)

    def invoke(*arguments: object, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["headroom", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, printed.out, printed.err)

    return invoke
