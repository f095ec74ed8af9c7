"""Every command where things are not as they should be: no cluster, no rights, nothing there, a wrong name, nobody who reads, Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from headroom.cli.main import app
from tests.cli.conftest import Done, Headroom
from tests.cli.served import Served
from tests.cli.stage import ROOT, fleet_behind_a_port
from tests.control_plane import wait_until
from tests.processes import PATIENCE_SECONDS, free_ports

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
PROGRAM = [sys.executable, "-m", "headroom"]
HEAVY = ("aiohttp", "asyncio", "cryptography", "jinja2", "numpy", "prometheus_client", "rich", "structlog", "yaml")


class Row(NamedTuple):
    """How a command is called, and what it says of an empty cluster and of a wrong name."""

    words: tuple[str, ...]
    """As in its golden output, without the cluster; FOLDER is a folder of the test's own."""
    lists: bool = True
    """Whether it reads lists of the cluster."""
    empty: str = ""
    wrong: tuple[str, ...] = ()
    near: str = ""


# Those that ask a cluster something.
LIVE = {
    "run": Row(("run", "--dry-run"), empty="There is no resource of Headroom to decide on."),
    "status": Row(("status",), empty="There is no budget"),
    "forecast": Row(
        ("forecast",),
        empty="There is no valid budget.",
        wrong=("forecast", "lab/team-x"),
        near="did you mean GPUWorkloadBudget/lab/team-a or",
    ),
    "explain": Row(
        ("explain", "pod/lab/train-0"),
        wrong=("explain", "gwb/lab/taem-a"),
        near="did you mean GPUWorkloadBudget/lab/team-a?",
    ),
    "stop": Row(("stop",), lists=False, empty="Stopped: ConfigMap"),
    "resume": Row(("resume",), lists=False, empty="Nothing was stopped"),
    "release": Row(
        ("release", "lab/train-0"),
        lists=False,
        wrong=("release", "pod/vision/nexxt"),
        near="did you mean pod/vision/next",
    ),
    "snapshot": Row(("snapshot", "-o", "FOLDER/world.json")),
    "uninstall": Row(("uninstall", "--yes", "--force"), empty="There is nothing to remove."),
    "bench workload": Row(("bench", "workload", "--count", "1"), lists=False, empty="Made 1 pod in"),
}
# Those that need none; a wrong name is that of a file, unless it says otherwise.
OFFLINE = {
    "plan": Row(("plan",)),
    "check": Row(("check",)),
    "convert": Row(("convert",)),
    "offers": Row(("offers",)),
    "replay": Row(("replay",)),
    "crds": Row(("crds",)),
    "policies": Row(("policies",)),
    "completion": Row(("completion", "bash"), wrong=("completion", "tcsh"), near="bash"),
    "version": Row(("version",)),
    "ledger info": Row(("ledger", "info", "--ledger-url")),
    "ledger history": Row(("ledger", "history", "--ledger-url")),
    "ledger backup": Row(("ledger", "backup", "FOLDER/new.db", "--ledger-url")),
    "ledger restore": Row(("ledger", "restore", "--ledger-url", "FOLDER/new.db")),
    "ledger copy": Row(("ledger", "copy", "--to", "FOLDER/new.db", "--from")),
    "ledger migrate": Row(("ledger", "migrate", "--ledger-url")),
    "ledger prune": Row(("ledger", "prune", "--before", "2024-01-01T00:00:00Z", "--ledger-url")),
    "bench report": Row(("bench", "report", "--elapsed", "1s", "--out-dir", "FOLDER", "--status-json")),
}
PRINTS_ONLY = ("crds", "policies", "version")
ELSEWHERE = {"demo", "dashboard", "extender", "simulate", "backtest offers", "top"}
"""Their own tests walk them through the same."""


def commands() -> dict[str, Any]:
    """Every command by its words."""
    top: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]  # a group
    found = {name: each for name, each in top.items() if not hasattr(each, "commands")}
    groups = {name: each.commands for name, each in top.items() if hasattr(each, "commands")}
    return found | {f"{name} {inner}": each for name, group in groups.items() for inner, each in group.items()}


def run(*words: object, code: int | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
    """A command as a process of its own, to its end."""
    command = [*PROGRAM, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env=ENVIRONMENT, cwd=ROOT, **more
    )
    assert "Traceback" not in done.stderr
    assert code is None or done.returncode == code, done.stderr
    return done


def called(headroom: Headroom, *words: object, code: int) -> Done:
    """The same within this process, since nearly all of the time of one of its own is its start."""
    done = headroom(*words)
    assert "Traceback" not in done.err
    assert done.code == code, done.err
    return done


def is_one_sentence(said: str) -> bool:
    return bool(re.fullmatch(r"headroom: [^\n]+: [^\n]+\n", said))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with fleet_behind_a_port(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Served]:
    with fleet_behind_a_port(tmp_path, empty=True) as made:
        yield made


def filled(words: tuple[str, ...], folder: Path) -> list[str]:
    return [word.replace("FOLDER", str(folder)) for word in words]


def test_the_tables_have_every_command() -> None:
    assert {*LIVE, *OFFLINE} == set(commands()) - ELSEWHERE


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_has_an_example(headroom: Headroom, name: str) -> None:
    done = headroom(*name.split(), "--help")
    assert done.code == 0
    assert re.search(rf"^Examples:\n(  .*\n)*?  (.* \| )?headroom {name}\b", done.out, re.MULTILINE)


def test_help_groups_every_command_by_what_people_want_to_do(headroom: Headroom) -> None:
    said = headroom("--help").out
    groups = re.findall(r"^(\S[^\n]*):\n  \S", said, re.MULTILINE)
    assert groups == [
        *("See how the fleet is", "Try a policy before it counts", "Step in"),
        *("Install and move in", "Run the operator", "Other", "Options", "Examples"),
    ]
    for name in commands():
        assert re.search(rf"^  {name.split()[0]} ", said, re.MULTILINE)


def test_help_loads_nothing_heavy() -> None:
    """Not even all help pages together: whoever asks for help wants it at once."""
    code = f"""
import sys
from headroom.cli.main import main
for name in {sorted(commands())!r}:
    sys.argv = ["headroom", *name.split(), "--help"]
    try:
        main()
    except SystemExit:
        pass
print([each for each in {HEAVY!r} if each in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert done.stdout.count("Examples:\n") >= len(commands())
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("name", LIVE)
def test_no_cluster(headroom: Headroom, fleet: Served, tmp_path: Path, name: str) -> None:
    [port] = free_ports(1)
    gone = tmp_path / "gone"
    gone.write_text(fleet.kubeconfig().read_text().replace(fleet.url, f"http://127.0.0.1:{port}"))
    done = called(headroom, *filled(LIVE[name].words, tmp_path), "--kubeconfig", gone, code=2)
    assert done.out == ""
    assert is_one_sentence(done.err)
    assert "check that the server runs" in done.err


@pytest.mark.parametrize("name", LIVE)
def test_no_rights(headroom: Headroom, fleet: Served, tmp_path: Path, name: str) -> None:
    nobody = fleet.kubeconfig("nobody", ())
    done = called(headroom, *filled(LIVE[name].words, tmp_path), "--kubeconfig", nobody, code=2)
    assert done.out == ""
    assert is_one_sentence(done.err)
    assert re.search(r"(may not|cannot|may list neither) ", done.err)
    assert re.search(r"; (ask an administrator|grant it|name one of your namespaces)", done.err)


@pytest.mark.parametrize("name", [name for name, row in LIVE.items() if row.empty])
def test_an_empty_cluster(headroom: Headroom, empty: Served, tmp_path: Path, name: str) -> None:
    done = called(headroom, *filled(LIVE[name].words, tmp_path), "--kubeconfig", empty.kubeconfig(), code=0)
    assert LIVE[name].empty in done.out


@pytest.mark.parametrize("name", [name for name, row in {**LIVE, **OFFLINE}.items() if row.near])
def test_a_wrong_name(headroom: Headroom, fleet: Served, name: str) -> None:
    row = {**LIVE, **OFFLINE}[name]
    to = ("--kubeconfig", fleet.kubeconfig()) if name in LIVE else ()
    done = called(headroom, *row.wrong, *to, code=2)
    assert done.out == ""
    assert row.near in done.err


@pytest.mark.parametrize("name", [name for name, row in OFFLINE.items() if not row.near and name not in PRINTS_ONLY])
def test_a_file_that_is_not_there(headroom: Headroom, tmp_path: Path, name: str) -> None:
    done = called(headroom, *filled(OFFLINE[name].words, tmp_path), tmp_path / "none.yaml", code=2)
    assert done.out == ""
    assert is_one_sentence(done.err)
    assert str(tmp_path / "none.yaml") in done.err
    assert not (tmp_path / "new.db").exists()


def test_a_wrong_command_is_offered_the_nearest() -> None:
    assert "Did you mean 'status'" in run("statsu", code=2).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("version",),
        ("crds",),
        ("policies", "-o", "json"),
        ("plan", "docs/examples/budget-used-up.yaml"),
        ("plan", "docs/examples/budget-used-up.yaml", "-o", "yaml"),
        ("check", "docs/examples/budget.yaml"),
        ("convert", "docs/examples/spotpool.yaml"),
        ("explain", "gwb/team-a", "-f", "docs/examples/budget-used-up.yaml"),
        ("status", "-f", "docs/examples/budget-used-up.yaml"),
        ("forecast", "-f", "docs/examples/budget-used-up.yaml", "team-a"),
        ("completion", "zsh"),
        ("completion", "--for", "--", ""),
        ("status", "@"),
        ("snapshot", "@"),
        ("run", "--dry-run", "@"),
        ("explain", "pod/vision/next", "@"),
    ],
    ids=" ".join,
)
def test_who_reads_no_further_ends_it_quietly(fleet: Served, words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    given = [*words[:-1], "--kubeconfig", fleet.kubeconfig()] if words[-1] == "@" else words
    command = [*PROGRAM, *map(str, given)]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, timeout=180, check=False, cwd=ROOT, env=ENVIRONMENT
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("name", [name for name, row in LIVE.items() if row.lists])
def test_ctrl_c_while_a_cluster_is_read(tmp_path: Path, name: str) -> None:
    with fleet_behind_a_port(tmp_path) as slow:
        slow.hangs = True
        command = [*PROGRAM, *filled(LIVE[name].words, tmp_path), "--kubeconfig", str(slow.kubeconfig())]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as process:
            assert slow.asked.wait(PATIENCE_SECONDS)
            process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=120)
    assert (process.returncode, out, said) == (130, "", "")


@pytest.mark.parametrize("words", [("check", "-"), ("plan", "-"), ("convert", "-"), ("replay", "-")], ids=" ".join)
def test_ctrl_c_while_standard_input_is_read(words: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [*PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"a: 1\n")
        process.stdin.flush()
        _wait_until_it_reads(process.pid)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=120)
    assert (process.returncode, out, said) == (130, b"", b"")


def _wait_until_it_reads(pid: int) -> None:
    """Until the process sleeps in a read of its standard input."""
    wait_until(lambda: "pipe" in Path(f"/proc/{pid}/wchan").read_text(), "it reads")


def test_ctrl_c_at_a_question(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with fleet_behind_a_port(tmp_path) as fleet:
        command = [*PROGRAM, "uninstall", "--force", "--kubeconfig", str(fleet.kubeconfig())]
        with subprocess.Popen(
            command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
        ) as process:
            assert process.stdout is not None
            said = b""
            while b"Remove all of this?" not in said:
                said += process.stdout.read(1)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
        assert process.returncode == 130
        assert fleet.do(lambda server: server.object("Lease", "headroom-system", "headroom")) is not None
    os.close(ours)
    os.close(theirs)


def examples() -> list[str]:
    """The examples in all help pages that need no cluster."""
    texts = [each.help or "" for each in commands().values()]
    return [found for text in texts for found in re.findall(r"Example: (headroom .*docs/examples.*)", text)]


@pytest.mark.parametrize("line", examples())
def test_an_example_runs_as_it_is_written(headroom: Headroom, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.chdir(ROOT)
    words = [str(each) for word in line.split()[1:] for each in (sorted(Path().glob(word)) if "*" in word else [word])]
    assert headroom(*words).code == 0


def test_there_are_such_examples() -> None:
    assert {line.split()[1] for line in examples()} >= {"status", "forecast", "plan", "check", "explain"}
