"""House rules that no linter knows: what may stand where, how long, and under which name."""

import ast
import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

from tests.reading_back import read_back
from tests.tiers import tier_of

ROOT = Path(__file__).parent.parent

MOST_LINES = {"src": 400, "bench": 400, "tests": 500}
MOST_LINES_OF_A_FUNCTION = 50

# Names that say nothing about what is inside.
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}

# Kubernetes JSON is turned into facts at the edge; whoever is not listed here works with typed data only.
JSON_ALLOWED = {
    "src/headroom/adapters/kube/": "the edge itself",
    "src/headroom/sim/": "plays the API server, so it speaks its language",
    "src/headroom/api/": "validates raw documents and generates CRDs and policies",
    "src/headroom/model/snapshots.py": "saves and loads our own kinds in their wire form",
    "src/headroom/adapters/documents.py": "reads manifests, in which our own kinds stand in their wire form",
    "src/headroom/adapters/outside.py": "reads documents of group sim.headroom.dev",
    "src/headroom/cli/convert.py": "rewrites manifests that are not ours yet",
}
JSON_KEYS = "metadata|spec|status|containers|containerStatuses|ownerReferences|resourceVersion"
JSON_INDEXING = re.compile(rf"""\[\s*["']({JSON_KEYS})["']\s*\]|\.get\(\s*["']({JSON_KEYS})["']""")

# Fixtures that start a real control plane.
CONTROL_PLANES = {"control_" + "plane", "bare_control_" + "plane"}

PATCHING = re.compile(r"\b(monkeypatch|mocker|unittest\.mock|import mock|MagicMock|setattr)\b")

# Split, so that this file does not find itself.
REGISTRIES = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("proxy", "golang", "org"),
            ("sum", "golang", "org"),
            ("npmjs", "org"),
            ("deb", "debian", "org"),
        )
    )
    + "|^--(index-url|extra-index-url|find-links)",
    re.MULTILINE,
)
MACHINE_PATHS = re.compile(r"""(?:^|[\s"'=:(`])/(home/\w|root/|Users/\w|work/)""", re.MULTILINE)


def tracked_files() -> list[str]:
    """All files that are, or are about to be, in the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted({name for name in listed.split("\0") if (ROOT / name).is_file()})


FILES = tracked_files()


def python_files(*folders: str) -> list[str]:
    return [name for name in FILES if name.endswith(".py") and name.startswith(tuple(f"{f}/" for f in folders))]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def matches(pattern: re.Pattern[str], names: list[str]) -> list[str]:
    found = []
    for name in names:
        try:
            text = text_of(name)
        except UnicodeDecodeError:
            continue
        found += [f"{name}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]}" for hit in pattern.finditer(text)]
    return found


def functions(name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(text_of(name))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def fixtures_asked_for(name: str) -> set[str]:
    """The parameters of tests and fixtures, and what `usefixtures` and `getfixturevalue` name."""
    asked = {argument.arg for function in functions(name) for argument in function.args.args}
    constants = (node for node in ast.walk(ast.parse(text_of(name))) if isinstance(node, ast.Constant))
    return asked | {node.value for node in constants if isinstance(node.value, str)}


@pytest.mark.parametrize("folder", MOST_LINES)
def test_files_are_short(folder: str) -> None:
    long = {name: len(text_of(name).splitlines()) for name in python_files(folder)}
    assert {name: lines for name, lines in long.items() if lines > MOST_LINES[folder]} == {}


def test_functions_are_short() -> None:
    long = {
        f"{name}:{function.lineno} {function.name}": lines
        for name in python_files("src", "tests", "bench")
        for function in functions(name)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    }
    assert long == {}


def test_every_file_opens_with_what_it_is_for() -> None:
    names = python_files("src", "bench") + [name for name in python_files("tests") if text_of(name)]
    assert [name for name in names if not ast.get_docstring(ast.parse(text_of(name)))] == []


def test_names_say_what_is_inside() -> None:
    parts = {name: set(re.split(r"[/._-]", name)) for name in python_files("src", "tests", "bench", "tools")}
    assert [name for name, words in parts.items() if words & EMPTY_NAMES] == []


def test_decisions_are_tested_without_patching() -> None:
    assert matches(PATCHING, python_files("tests/core")) == []


def test_kubernetes_json_is_read_at_the_edge_only() -> None:
    names = [name for name in python_files("src") if not name.startswith(tuple(JSON_ALLOWED))]
    assert matches(JSON_INDEXING, names) == []


# What others write has no other form, and what is shaped for people is no state.
SENTENCES_ALLOWED = {
    "src/headroom/adapters/kube/errors.py::verb": "the API server names the missing right in its sentence only",
    "src/headroom/adapters/kube/errors.py::resource": "the API server names the missing right in its sentence only",
    "src/headroom/adapters/kube/errors.py::from_reply": "cuts the middle out of a long answer",
    "src/headroom/adapters/kube/errors.py::says_gone": "a proxy's 404 has the same reason; only the API server names the object",
    "src/headroom/adapters/kube/errors.py::eviction_error": "the API server's 500 for two budgets has no reason of its own",
    "src/headroom/adapters/kube/events.py::emit": "the API server's 403 for a namespace that goes has no reason of its own",
    "src/headroom/adapters/kube/parse.py::_unschedulable": "kube-scheduler's words, put on one line for people",
    "src/headroom/cli/face_power.py::decided": "shortens the moments in what a pool says, for people",
}


def test_no_sentence_is_read_back() -> None:
    """State is fields and enums."""
    found = {f"{name}::{each.function}": each.line for name in python_files("src") for each in read_back(text_of(name))}
    assert {place: line for place, line in found.items() if place not in SENTENCES_ALLOWED} == {}
    assert [place for place in SENTENCES_ALLOWED if place not in found] == []


@pytest.mark.parametrize(
    "source",
    [
        "a.message == b",
        "'x' in a.message",
        "a.message.split()",
        "a.b.sentence.startswith('x')",
        "text = a.message\nif text == 'x': pass",
        "text = a.message\nother = text or ''\nother.index('x')",
        "if (text := a.message) != 'x': pass",
        "text, n = a.because, 1\ntext == 'x'",
        "any(text == 'x' for text in (a.message, b.message))",
        "any(text == 'x' for text in [each.message for each in found])",
        "(a.reason, a.message) == (b.reason, b.message)",
        "a.message.lower() == 'x'",
        "a.message[:3] == 'x'",
        "name = a.message[4:]",
        "name = a.message.removesuffix(' sleeps')",
        "re.search('x', a.message)",
        "_PATTERN.match(a.message)",
        "_PATTERN.search(str(a.message))",
        "match a.message:\n    case 'x': pass",
        "a['message'] == 'x'",
        "getattr(a, 'message').split()",
        "str(a.message) == 'x'",
        "STATES[a.message]",
        "STATES.get(a.message)",
        "a.message in STATES",
        "f'{a.message}.' == 'x'",
        "'x' in pod.unschedulable_message",
        "action.because == 'x'",
        "def f(a):\n    said = a.message\n    return said.partition(' ')[0]",
    ],
)
def test_a_sentence_that_is_read_back_is_found(source: str) -> None:
    assert read_back(source)


@pytest.mark.parametrize(
    "source",
    [
        "b.message = a.message",
        "f'{a.message.rstrip(\".\")}; {more}'",
        "say(a.message[:LONGEST])",
        "a.reason == 'x' and say(a.message)",
        "if a.message: say(a.message)",
        "def f(a):\n    text = a.message\ndef g(text):\n    return text == 'x'",
    ],
)
def test_a_sentence_may_be_passed_on(source: str) -> None:
    assert read_back(source) == []


def test_core_modules_use_one_another_by_their_front_door() -> None:
    """`from headroom.core.x import _y`, and `headroom.core.x.y` from outside x, are internals."""
    found = []
    for name in python_files("src"):
        for node in ast.walk(ast.parse(text_of(name))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("headroom.core."):
                continue
            capability, *inside = (node.module or "").removeprefix("headroom.core.").split(".")
            at_home = name.startswith((f"src/headroom/core/{capability}/", f"src/headroom/core/{capability}.py"))
            private = any(alias.name.startswith("_") for alias in node.names)
            if not at_home and (inside or private):
                found.append(f"{name}:{node.lineno}")
    assert found == []


def test_what_needs_a_control_plane_runs_in_the_lane_that_builds_it() -> None:
    """The other lane runs while the control plane is still being built, so a test there would be skipped."""
    allowed = ("tests/contracts/", "tests/integration/", "tests/conftest.py")
    names = [name for name in python_files("tests") if not name.startswith(allowed)]
    assert [f"{name} {asking}" for name in names for asking in fixtures_asked_for(name) & CONTROL_PLANES] == []


def test_every_test_is_in_one_piece_of_the_suite() -> None:
    """Those of the contracts in two: what needs a cluster, and what does not. This file is a part of `make check`."""
    told = subprocess.run([ROOT / "tools" / "test", "--pieces"], capture_output=True, text=True, check=True).stdout
    pieces = [line.partition(": ")[2].split() for line in told.splitlines() if line != "check"]
    for name in python_files("tests"):
        if re.search(r"/test_\w+\.py$", name) and not name.startswith(("tests/kueue/", "tests/test_tidy")):
            chosen = [words[1] if words[0] == "-m" else "" for words in pieces if _is_given(name, words)]
            wanted = {"integration": ["cluster"], "contracts": ["cluster", "not(cluster)"]}
            assert chosen == wanted.get(tier_of(name), [""]), name


def _is_given(name: str, words: list[str]) -> bool:
    """Whether pytest collects the file when it is given these words."""
    left_out = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    given = [word for word in words if word.startswith("tests")]
    in_folder = [PurePosixPath(name).is_relative_to(word) for word in (*given, *left_out)]
    is_inside = any(in_folder[: len(given)]) and not any(in_folder[len(given) :])
    return is_inside or any(fnmatch(name, word) for word in given)


def test_a_public_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = {}
    for name in python_files("src/headroom"):
        for each in ast.walk(ast.parse(text_of(name))):
            if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
                found.setdefault(each.name, []).append(name)
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_nothing_depends_on_one_machine() -> None:
    assert matches(REGISTRIES, FILES) == []
    assert matches(MACHINE_PATHS, FILES) == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (JSON_INDEXING, 'pod["metadata"]["name"]'),
        (JSON_INDEXING, "node.get('status', {})"),
        (PATCHING, "def test(monkeypatch): ..."),
        (REGISTRIES, "https://files.python" + "hosted.org/packages"),
        (REGISTRIES, "--index" + "-url https://somewhere"),
        (MACHINE_PATHS, "file = '/ho" + "me/ada/x'"),
    ],
)
def test_the_rules_can_fail(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = re.findall(r"`(\S+\.py)::(\w+)`", text_of("docs/security.md"))
    assert len(named) > 30
    there = {(name, each.name) for name in python_files("tests") for each in functions(name)}
    assert [f"{file}::{test}" for file, test in named if (f"tests/{file}", test) not in there] == []
