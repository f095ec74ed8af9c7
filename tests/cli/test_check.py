"""`headroom check` names every wrong field with its line, and no input makes it hang or crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import samples
from tests.cli.conftest import Headroom

OURS = samples.BUDGET.replace("budget.zxuhan.dev", "headroom.dev")
WRONG = """\
# a comment
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata:
  name: team-a
  namespace: lab
spec:
  selector:
    matchLabels:
      example.com/team: "not a label value"
  quota:
    gpuHours: "-5"
    windowHours: 0
  enforcement:
    action: Shout
  colour: red
---
apiVersion: v1
kind: ConfigMap
metadata: {name: passed-over}
---
apiVersion: v1
kind: List
items:
- apiVersion: headroom.dev/v1alpha1
  kind: PowerPool
  metadata: {name: rack}
  spec:
    machines:
    - name: a
      gpuCount: 1
      scaleUpEndpoint: http://a/up
      scaleDownEndpoint: ftp://a/down
"""


def test_every_wrong_field_at_once_with_its_line(headroom: Headroom, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    done = headroom("check", file)
    assert done.code == 1
    places = [line.removeprefix(f"{file}:").split(" must")[0].split(" is")[0] for line in done.out.splitlines()]
    assert places == [
        "10: GPUWorkloadBudget/lab/team-a: spec.selector.matchLabels.example.com/team",
        "12: GPUWorkloadBudget/lab/team-a: spec.quota.gpuHours",
        "13: GPUWorkloadBudget/lab/team-a: spec.quota.windowHours",
        "15: GPUWorkloadBudget/lab/team-a: spec.enforcement.action",
        "16: GPUWorkloadBudget/lab/team-a: spec.colour",
        "33: PowerPool/rack: spec.machines[0].scaleDownEndpoint",
    ]
    assert done.err.splitlines() == [
        "skipped 1 ConfigMap: only resources of Headroom are checked",
        "6 problems in 2 resources",
    ]


def test_a_missing_field_has_the_line_of_what_should_hold_it(headroom: Headroom, tmp_path: Path) -> None:
    file = tmp_path / "short.yaml"
    file.write_text("apiVersion: headroom.dev/v1alpha1\nkind: Spotpool\nmetadata: {name: a}\nspec:\n  region: r\n")
    done = headroom("check", file)
    assert [line.split(": ", 1)[0] for line in done.out.splitlines()] == [f"{file}:4", f"{file}:4"]


def test_right_ones_pass_and_old_ones_are_sent_to_convert(headroom: Headroom) -> None:
    assert headroom("check", "-", stdin=OURS.encode()).out == "1 resource, no problems\n"
    done = headroom("check", "-", stdin=samples.BUDGET.encode())
    assert done.code == 1
    assert "standard input:1: GPUWorkloadBudget/default/team-a: apiVersion must be headroom.dev/v1alpha1" in done.out
    assert "`headroom convert` changes it" in done.out


def test_files_may_be_given_as_to_the_other_commands(headroom: Headroom, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(OURS)
    assert headroom("check", "-f", tmp_path / "one.yaml").out == "1 resource, no problems\n"
    none = headroom("check")
    assert (none.code, none.err) == (
        2,
        "headroom: reading manifests: none are given; write `headroom check FILE`, - being standard input\n",
    )


@pytest.mark.parametrize("version", ["example.com/v1", "headroom.dev/v2", "headroom.dev"])
def test_convert_is_not_named_for_what_it_does_not_know(headroom: Headroom, version: str) -> None:
    done = headroom("check", "-", stdin=OURS.replace("headroom.dev/v1alpha1", version).encode())
    assert done.code == 1
    assert done.out.endswith(
        f'apiVersion must be headroom.dev/v1alpha1, not "{version}"; write headroom.dev/v1alpha1\n'
    )


@pytest.mark.parametrize("command", ["check", "plan"])
@pytest.mark.parametrize(
    ("version", "kind", "known"),
    [("headroom.dev/v1alpha1", "Spotpol", "Spotpool"), ("sim.headroom.dev/v1", "Offers", "Offer")],
)
def test_an_unknown_kind_of_ours_is_a_problem(
    headroom: Headroom, command: str, version: str, kind: str, known: str
) -> None:
    done = headroom(command, "-", stdin=f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n".encode())
    assert done.code == 1
    assert f"{kind}/a: kind must be one of " in done.out
    assert known in done.out


@pytest.mark.parametrize(
    ("version", "kind", "says"),
    [
        ("v1", "Nod", "skipped 1 Nod of v1: did you mean Node of v1?"),
        ("v1", "Pods", "skipped 1 Pods of v1: did you mean Pod of v1?"),
        ("example.com/v1", "Powerpol", "did you mean PowerPool of headroom.dev/v1alpha1?"),
        ("headroom.dev/v1alpha1", "powerpool", "not 'powerpool'; did you mean PowerPool of headroom.dev/v1alpha1?"),
        ("headroom.dev/v1alpha1", "Nod", "not 'Nod'; did you mean Node of v1?"),
    ],
)
@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_kind_with_a_slip_in_it_is_asked_about(
    headroom: Headroom, command: str, version: str, kind: str, says: str
) -> None:
    done = headroom(command, "-", stdin=f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n".encode())
    assert says in done.out + done.err


@pytest.mark.parametrize("kind", ["NodeClass", "PodTemplate", "NodeMetrics", "PodGroup", "Machine"])
def test_other_kinds_are_not_asked_about(headroom: Headroom, kind: str) -> None:
    done = headroom("check", "-", stdin=f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: a}}\n".encode())
    assert "did you mean" not in done.out + done.err


@pytest.mark.parametrize("command", ["check", "plan"])
def test_an_object_without_a_kind_is_a_problem(headroom: Headroom, command: str) -> None:
    done = headroom(command, "-", stdin=b"apiVersion: headroom.dev/v1alpha1\nmetadata: {name: a}\n")
    assert done.code == 1
    assert "a: kind is required\n" in done.out
    assert "None" not in done.out


def test_the_other_files_are_checked_if_one_cannot_be_read(headroom: Headroom, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(OURS.replace("windowHours: 24", "windowHours: 0"))
    (tmp_path / "bad.yaml").write_text("a: [")
    done = headroom("check", tmp_path / "none.yaml", tmp_path / "bad.yaml", tmp_path / "wrong.yaml")
    assert done.code == 2
    assert [line.split(": ")[0] for line in done.err.splitlines()] == [
        "headroom",
        "headroom",
        "1 problem in 1 resource",
    ]
    assert "spec.quota.windowHours must be" in done.out


@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_key_given_twice_is_a_problem(headroom: Headroom, command: str) -> None:
    twice = OURS.replace("    windowHours: 24\n", "    windowHours: 24\n    windowHours: 48\n")
    done = headroom(command, "-", stdin=f"{OURS.replace('team-a', 'team-b')}---\n{twice}".encode())
    assert done.code == 1
    assert "GPUWorkloadBudget/default/team-a: windowHours is a duplicate: line 28 has it already\n" in done.out
    assert done.out.count("is a duplicate") == 1
    if command == "check":
        assert done.out.startswith("standard input:29: ")


@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_resource_given_twice_is_a_problem_that_names_both_places(
    headroom: Headroom, tmp_path: Path, command: str
) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(f"# a comment\n{OURS}")
    second.write_text(OURS)
    done = headroom(command, first, second)
    assert done.code == 1
    assert f"GPUWorkloadBudget/default/team-a: is a duplicate: it is at {first}:2 already\n" in done.out


def a_pod(name: str, uid: str) -> str:
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: lab, uid: {uid}}}\n"


def test_two_pods_with_one_uid_are_a_problem_that_names_both(headroom: Headroom, tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(a_pod("a", "u-1"))
    second.write_text(f"{a_pod('c', 'u-2')}---\n{a_pod('b', 'u-1')}")
    done = headroom("plan", "-f", first, "-f", second)
    assert done.code == 1
    words = "Pod/lab/b: metadata.uid u-1 is also that of Pod/lab/a; give each pod its own, or leave it out"
    assert f"{words}: it is at {first}:1 already\n" in done.out


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("gpuResourceName: nvidia.com/gpu, gpuResources: [{name: amd.com/gpu}]", "nvidia.com/gpu is not counted"),
        ("gpuResourceName: amd.com/gpu, gpuResources: [{name: nvidia.com/gpu}]", "amd.com/gpu is not counted"),
        (
            "gpuResourceName: nvidia.com/gpu, gpuResources: [{name: nvidia.com/*}]",
            "nvidia.com/gpu is counted by gpuResources",
        ),
        ("gpuResources: [{name: amd.com/gpu}]", ""),
        ("gpuResourceName: amd.com/gpu", ""),
    ],
)
def test_a_resource_name_that_is_ignored_is_a_warning(headroom: Headroom, fields: str, words: str) -> None:
    text = OURS.replace("spec:\n", f"spec:\n  {fields.replace(', gpuResources', chr(10) + '  gpuResources')}\n")
    done = headroom("check", "-", stdin=text.encode())
    assert done.code == 0
    assert ("warning: spec.gpuResourceName is ignored: gpuResources replaces it" in done.out) == bool(words)
    assert words in done.out


def test_files_with_nothing_of_headroom_are_named(headroom: Headroom) -> None:
    done = headroom("check", "-", stdin=f"{samples.NODE_CLASS}---\napiVersion: v1\nkind: Pod\n".encode())
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        "skipped 1 EC2NodeClass, 1 Pod: only resources of Headroom are checked",
        "nothing of Headroom in standard input",
    ]


@pytest.mark.parametrize("command", [("check",), ("plan",), ("status", "-f"), ("explain", "gwb/lab/x", "-f")])
@pytest.mark.parametrize("text", [b"", b" \n\n"])
def test_an_empty_file_is_no_set_of_manifests(headroom: Headroom, command: tuple[str, ...], text: bytes) -> None:
    done = headroom(*command, "-", stdin=text)
    assert (done.code, done.out) == (2, "")
    assert done.err == "headroom: reading standard input: it is empty; check the path, or the command that wrote it\n"


def test_a_folder_and_a_tab_are_said_in_plain_words(headroom: Headroom, tmp_path: Path) -> None:
    done = headroom("check", tmp_path)
    assert done.err == (
        f"headroom: reading {tmp_path}: the folder has no .yaml, .yml, .json file; check the path, or give -R to look into its folders too\n"
    )
    done = headroom("check", "-", stdin=b"apiVersion: v1\nkind: Pod\nmetadata:\n\tname: a\n")
    assert done.code == 2
    assert "line 4 begins with a tab, which YAML does not allow" in done.err


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(12)
)
NOISE = {
    "bytes": os.urandom(2**20),
    "letters": b"a" * 2**20,
    "brackets": b"[" * 2**20,
    "braces": b"{" * 2**20,
    "dashes": b"- " * 2**19,
    "questions": b"? " * 2**19,
    "keys": b"a: " * 2**18,
    "anchors": b"&a " * 2**18,
    "list": b"- a\n" * 2**18,
    "controls": b"a: \x1b[31m\x07" * 2**16,
    "bomb": BOMB.encode(),
}


@pytest.mark.parametrize("command", [["check"], ["plan", "-f"], ["convert"]], ids=lambda command: str(command[0]))
@pytest.mark.parametrize("noise", NOISE)
def test_a_megabyte_of_noise_is_one_sentence(headroom: Headroom, noise: str, command: list[str]) -> None:
    done = headroom(*command, "-", stdin=NOISE[noise])
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("headroom: reading standard input: ")
    assert done.err.count("\n") == 1
    assert len(done.err) < 400
    assert done.err.removesuffix("\n").isprintable()


def test_a_file_that_is_not_there_is_one_sentence(headroom: Headroom, tmp_path: Path) -> None:
    done = headroom("check", tmp_path / "none.yaml")
    assert done.code == 2
    assert (
        done.err
        == f"headroom: reading {tmp_path}/none.yaml: No such file or directory; check the path and its rights\n"
    )


def test_noise_cannot_crash_the_process() -> None:
    """libyaml's composer would overflow the stack, which no exception handler sees: so in a process of its own."""
    command = [sys.executable, "-m", "headroom", "check", "-"]
    done = subprocess.run(command, input=NOISE["brackets"], capture_output=True, timeout=180, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
