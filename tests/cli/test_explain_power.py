"""What the commands say of power: pools, their machines, and pods that wait for one; with the rights that whoever asks has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from headroom.runtime.clock import RealClock
from headroom.sim.rights import Right
from tests.cli.conftest import Headroom
from tests.cli.served import Served
from tests.cli.stage import FLEET, NOON, NOON_MS, fleet_behind_a_port

OFFLINE = ("-f", str(FLEET), "--now", NOON)
TENANT = (Right(verbs=("*",), resources=("pods", "gpuworkloadbudgets"), namespaces=("lab",)),)
READS = ("pods", "nodes", "powerpools", "spotpools", "gpuworkloadbudgets")
SEES_ALL_BUT_KARPENTER = (Right(verbs=("get", "list"), resources=READS, namespaces=("*",)),)
SEES_POOLS = (*TENANT, Right(verbs=("get", "list"), resources=("powerpools", "spotpools"), namespaces=("*",)))
STATUS = {"name": "gpu-02", "state": "Failed", "since": "2026-11-15T11:00:00Z", "failures": 2}
FAILED = STATUS | {
    "reason": "Its node was not Ready 900s after the wake command of 2026-11-15T10:45:00Z.",
    "wokenAt": "2026-11-15T10:45:00Z",
    "retryAfter": "2026-11-15T12:30:00Z",
    "toggles": ["2026-11-15T11:10:00Z"],
}


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RealClock, "now", lambda _: NOON_MS)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Served]:
    with fleet_behind_a_port(tmp_path) as made:
        yield made


def pool_with(folder: Path, *machines: dict[str, object], **policy: object) -> Path:
    """The fleet, with another past of its pool."""
    found = list(yaml.safe_load_all(FLEET.read_text()))
    pool = next(each for each in found if each["kind"] == "PowerPool")
    pool["status"]["machines"] = [*machines, *pool["status"]["machines"][len(machines) :]]
    pool["spec"]["policy"] |= policy
    (folder / "fleet.yaml").write_text(yaml.safe_dump_all(found))
    return folder / "fleet.yaml"


def test_a_machine_that_failed_says_how_and_when_it_is_tried_again(headroom: Headroom, tmp_path: Path) -> None:
    done = headroom("explain", "machine/gpu-02", "-f", pool_with(tmp_path, FAILED), "--now", NOON)
    says = "Machine gpu-02 (8 GPUs) of PowerPool/basement is Failed since 2026-11-15T11:00:00Z."
    proviso, *lines = done.out.splitlines()
    assert proviso == "Dry run: nothing was changed."
    assert lines[1:6] == [
        f"{says} {FAILED['reason']}",
        "- last wake command at 2026-11-15T10:45:00Z",
        "- failed 2 times in a row",
        "- next attempt at 2026-11-15T12:30:00Z",
        "- switched once in the last hour",
    ]
    row = next(
        line
        for line in headroom("status", "-f", tmp_path / "fleet.yaml", "--now", NOON).out.splitlines()
        if line.startswith("basement")
    )
    assert row.split()[:5] == ["basement", "0", "1", "0", "1"]
    assert " MachinesFailed " in row


def test_machines_on_trial_are_told_with_how_often_it_was_in_vain(headroom: Headroom, tmp_path: Path) -> None:
    found = list(yaml.safe_load_all(pool_with(tmp_path, FAILED).read_text()))
    pool = next(each for each in found if each["kind"] == "PowerPool")
    pool["status"]["trials"] = [
        {"shape": "0123456789ab", "machine": "gpu-02", "at": "2026-11-15T11:30:00Z", "inVain": 2}
    ]
    done = headroom("explain", "pp/basement", "-f", "-", "--now", NOON, stdin=yaml.safe_dump_all(found).encode())
    lines = [line.split() for line in done.out.splitlines()]
    assert ["MACHINE", "AT", "FAILED", "TRIALS"] in lines
    assert ["gpu-02", "2026-11-15T11:30:00Z", "2"] in lines


def test_a_pool_names_who_announced_the_pods_it_expects(headroom: Headroom, tmp_path: Path) -> None:
    found = list(yaml.safe_load_all(pool_with(tmp_path, FAILED).read_text()))
    pool = next(each for each in found if each["kind"] == "PowerPool")
    pool["status"]["expected"] = [{"of": "CronJob/lab/nightly", "uid": "u", "dueAt": "2026-11-15T12:03:00Z"}]
    done = headroom("explain", "pp/basement", "-f", "-", "--now", NOON, stdin=yaml.safe_dump_all(found).encode())
    assert ["CronJob/lab/nightly", "2026-11-15T12:03:00Z"] in [line.split() for line in done.out.splitlines()]


RACK = {
    "apiVersion": "headroom.dev/v1alpha1",
    "kind": "PowerPool",
    "metadata": {"name": "rack"},
    "spec": {"machines": [{"name": "gpu-01", "gpuCount": 8, "redfish": {"address": "https://bmc.example.com"}}]},
    "status": {
        "machines": [{"name": "gpu-01", "state": "On", "since": "2026-11-14T08:00:00Z", "busy": True}],
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Reconciled",
                "message": "1 of 1 machines is on, 1 in use.",
                "lastTransitionTime": NOON,
            }
        ],
    },
}
KEPT = "- kept on by lab/train-0, vision/notebook and vision/old-0"


def test_a_machine_that_pods_keep_on_names_them(headroom: Headroom, fleet: Served) -> None:
    both = [*yaml.safe_load_all(FLEET.read_text()), RACK]
    done = headroom("explain", "machine/gpu-01", "-f", "-", "--now", NOON, stdin=yaml.safe_dump_all(both).encode())
    assert KEPT in done.out.splitlines()
    fleet.put(RACK)
    done = headroom("explain", "machine/gpu-01", "--kubeconfig", fleet.kubeconfig())
    assert done.out.splitlines()[:2] == [
        "Machine gpu-01 (8 GPUs) of PowerPool/rack is On since 2026-11-14T08:00:00Z.",
        KEPT,
    ]
    done = headroom("explain", "machine/gpu-01", "-o", "json", "--kubeconfig", fleet.kubeconfig())
    assert json.loads(done.out)["holding"] == [KEPT.removeprefix("- ")]
    done = headroom("explain", "machine/gpu-01", "--kubeconfig", fleet.kubeconfig("half", SEES_POOLS))
    assert "kept on" not in done.out
    assert "- not checked for lack of permission: pods, nodes" in done.out


def test_what_no_operator_has_looked_at_is_called_a_plan(headroom: Headroom, fleet: Served) -> None:
    done = headroom("explain", "pp/basement", "--kubeconfig", fleet.kubeconfig())
    assert done.out.startswith("PowerPool/basement\n"), "the operator has written it down"
    fleet.put(RACK | {"metadata": {"name": "new"}, "status": {}})
    done = headroom("explain", "pp/new", "--kubeconfig", fleet.kubeconfig())
    assert done.out.startswith("No operator has looked at it yet. Headroom would decide this now:\n\nPowerPool/new\n")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("machine/gpu-20", "looking for machine gpu-20: no PowerPool has it (did you mean gpu-0"),
        ("machines/zzz", "no PowerPool has it; known are gpu-02, gpu-03"),
        ("machine", "write KIND/[NAMESPACE/]NAME"),
        ("machin/gpu-02", "did you mean machine"),
    ],
)
def test_whoever_asks_for_another_machine_is_helped(headroom: Headroom, asked: str, says: str) -> None:
    done = headroom("explain", asked, *OFFLINE)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_a_machine_that_two_pools_name_is_told_of_by_the_one_that_keeps_it(headroom: Headroom, tmp_path: Path) -> None:
    pool = next(each for each in yaml.safe_load_all(FLEET.read_text()) if each["kind"] == "PowerPool")
    other = pool | {"metadata": {"name": "attic"}, "spec": pool["spec"] | {"order": 1}}
    (tmp_path / "pools.yaml").write_text(yaml.safe_dump_all([other, pool]))
    done = headroom("explain", "machine/gpu-02", "-f", tmp_path / "pools.yaml", "--now", NOON)
    assert "of PowerPool/basement is" in done.out
    assert "belongs to PowerPool/basement" in headroom("plan", tmp_path / "pools.yaml", "--now", NOON).out


def test_hundreds_of_machines_fit_a_screen(headroom: Headroom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    way = {"gpuCount": 1, "redfish": {"address": "https://bmc.example.com"}}
    spec = {"machines": [{"name": f"m{number:03}"} | way for number in range(200)]}
    states = [{"name": f"m{number:03}", "state": "Off", "since": NOON} for number in range(199)]
    pool = {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "PowerPool",
        "metadata": {"name": "rack"},
        "spec": spec,
        "status": {"machines": [*states, FAILED | {"name": "m199"}]},
    }
    words = ("explain", "pp/rack", "-f", "-", "--now", NOON)
    assert headroom(*words, stdin=json.dumps(pool).encode()).out.count("\n  m") == 200, "a pipe has room"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = headroom(*words, stdin=json.dumps(pool).encode()).out
    assert "  and 160 more; -o json has them all\n" in screen
    assert screen.index("\n  m199") < screen.index("\n  m000"), "what needs a look comes first"


def test_who_sees_little_is_told_what_was_not_looked_at(headroom: Headroom, fleet: Served) -> None:
    done = headroom("explain", "pod/lab/wide", "--kubeconfig", fleet.kubeconfig("tenant", TENANT))
    assert done.code == 0
    assert done.out.splitlines()[0].endswith("1 node(s) were not ready.")
    assert "not checked for lack of permission: " in done.out
    assert "powerpools" in done.out


def test_who_sees_pools_but_not_the_cluster_hears_what_is_written_of_the_pod(headroom: Headroom, fleet: Served) -> None:
    stored = fleet.do(lambda server: server.object("PowerPool", "", "basement"))
    assert stored is not None
    vain = {"pod": "lab/wide", "pods": 1, "reason": "NoMachineFits", "message": "It needs 8 GPUs and 4 are there."}
    kind = {"apiVersion": "headroom.dev/v1alpha1", "kind": "PowerPool"}
    fleet.put(kind | stored | {"status": stored["status"] | {"unserved": [vain]}})
    done = headroom("explain", "pod/lab/wide", "--kubeconfig", fleet.kubeconfig("half", SEES_POOLS))
    assert "PowerPool/basement wakes no machine for it: It needs 8 GPUs and 4 are there." in done.out.splitlines()[0]


def test_who_sees_all_that_counts_hears_which_machine_wakes_and_what_was_not_looked_at(
    headroom: Headroom, fleet: Served
) -> None:
    done = headroom("explain", "pod/lab/wide", "--kubeconfig", fleet.kubeconfig("viewer", SEES_ALL_BUT_KARPENTER))
    assert done.out.splitlines()[0].endswith("gpu-02 (8 GPUs) of PowerPool/basement wakes for it.")
    assert "nodepools.karpenter.sh" in done.out


def test_where_there_is_no_pool_nothing_is_said_of_machines(headroom: Headroom, tmp_path: Path) -> None:
    found = [each for each in yaml.safe_load_all(FLEET.read_text()) if not each["kind"].lower().endswith("pool")]
    done = headroom("explain", "pod/lab/wide", "-f", "-", "--now", NOON, stdin=yaml.safe_dump_all(found).encode())
    assert done.out.splitlines()[0].endswith("1 node(s) were not ready.")
    assert "POOL" not in headroom("status", "-f", "-", "--now", NOON, stdin=yaml.safe_dump_all(found).encode()).out


def test_a_pool_that_is_paused_or_wrong_says_so(headroom: Headroom, tmp_path: Path) -> None:
    text = FLEET.read_text()
    paused = text.replace("  policy: {idleSeconds: 900}", "  paused: true\n  policy: {idleSeconds: 900}")
    done = headroom("explain", "pp/basement", "-f", "-", "--now", NOON, stdin=paused.encode())
    assert "It is paused, so nothing below is carried out" in done.out
    wrong = text.replace("idleSeconds: 900", "idleSeconds: -1")
    row = headroom("status", "-f", "-", "--now", NOON, stdin=wrong.encode())
    assert row.code == 1
    assert "Invalid  spec.policy.idleSeconds must be from 0 to 604800, not -1" in row.out
    done = headroom("explain", "machine/gpu-02", "-f", "-", "--now", NOON, stdin=wrong.encode())
    assert "no PowerPool has it" in done.err


def test_only_the_pools_of_a_screen_are_shown_unless_all_are_wanted(
    headroom: Headroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = """\
apiVersion: headroom.dev/v1alpha1
kind: PowerPool
metadata: {{name: pool-{0:02}}}
spec: {{machines: [{{name: m{0}, gpuCount: 1, redfish: {{address: "https://bmc-{0}.example.com"}}}}]}}
"""
    many = "---\n".join(pool.format(number) for number in range(15)).encode()
    words = ("status", "-f", "-", "--now", NOON)
    assert headroom(*words, stdin=many).out.count("pool-") == 15
    monkeypatch.setenv("FORCE_COLOR", "1")
    screen = headroom(*words, stdin=many).out
    assert (screen.count("pool-"), screen.splitlines()[-1]) == (10, "and 5 pools more; --all lists them")
    assert headroom(*words, "--all", stdin=many).out.count("pool-") == 15


POOL = """
apiVersion: headroom.dev/v1alpha1
kind: PowerPool
metadata: {name: metal}
spec:
  machines: [{name: metal-1, gpuCount: 8, scaleUpEndpoint: "http://power/1/on", scaleDownEndpoint: "http://power/1/off"}]
  policy: {bootTimeoutSeconds: 600}
---
apiVersion: v1
kind: Node
metadata: {name: metal-1}
status: {allocatable: {nvidia.com/gpu: "8"}, conditions: [{type: Ready, status: "STATUS", lastTransitionTime: "2026-11-15T06:00:00Z"}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: lab, creationTimestamp: "2026-11-01T00:00:00Z"}
spec:
  schedule: "5 13 * * *"
  timeZone: Europe/Berlin
  jobTemplate:
    spec:
      template: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: "8"}}}]}}
"""


def woken(headroom: Headroom, file: Path, now: str) -> list[str]:
    """The machines that a tick would wake."""
    decisions = json.loads(headroom("plan", "-f", file, "--now", now, "-o", "json").out)["decisions"]
    return [due["machine"] for each in decisions for due in each["actions"] if due["type"] == "WakeMachine"]


def test_a_cron_job_among_the_documents_wakes_a_machine_or_keeps_it_and_it_is_said_for_whom(
    headroom: Headroom, tmp_path: Path
) -> None:
    off, on = tmp_path / "off.yaml", tmp_path / "on.yaml"
    off.write_text(POOL.replace("STATUS", "False"))
    on.write_text(POOL.replace("STATUS", "True"))
    assert woken(headroom, off, NOON) == ["metal-1"]
    assert woken(headroom, off, "2026-11-15T11:00:00Z") == []
    kept = headroom("explain", "machine/metal-1", "-f", on, "--now", NOON).out
    assert "kept on for 1 announced pod (CronJob/lab/nightly)" in kept


@pytest.mark.parametrize(
    ("field", "text", "named"),
    [
        ("schedule", "61 13 * * *", "spec.schedule '61 13 * * *' is not a schedule"),
        ("schedule", "0 0 30 2 *", "spec.schedule '0 0 30 2 *' names a day that none of its months has"),
        ("timeZone", "Europe/Nowhere", "spec.timeZone 'Europe/Nowhere' is not a known time zone"),
    ],
)
def test_a_cron_job_that_never_runs_is_named_with_its_field(
    headroom: Headroom, tmp_path: Path, field: str, text: str, named: str
) -> None:
    documents = list(yaml.safe_load_all(POOL.replace("STATUS", "False")))
    documents[-1]["spec"][field] = text
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    for command in (("plan",), ("explain", "machine/metal-1")):
        done = headroom(*command, "-f", file, "--now", NOON)
        assert done.code == 0
        assert f"CronJob/lab/nightly: {named}" in done.err
    (tmp_path / "right.yaml").write_text(POOL.replace("STATUS", "False"))
    assert "CronJob" not in headroom("plan", "-f", tmp_path / "right.yaml", "--now", NOON).err
