"""What the commands say of spot pools: a pool, one machine by its cloud's id, the fleet, and what is dubious in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from headroom.runtime.clock import RealClock
from headroom.sim.rights import Right
from tests.cli.conftest import Headroom
from tests.cli.served import Served
from tests.cli.stage import FLEET, NOON, NOON_MS, fleet_behind_a_port
from tests.web import spots
from tests.web.pools import Left

SEES_POOLS = (Right(verbs=("get", "list"), resources=("spotpools",), namespaces=("*",)),)
SEES_NOTHING = (Right(verbs=("get", "list"), resources=("pods",), namespaces=("lab",)),)


def a_document(left: Left, **spec: Any) -> dict[str, Any]:
    """The pool as it stands in a cluster, with its status."""
    metadata = {"name": left.resource.name, "namespace": left.resource.namespace, "uid": "u"}
    status = msgspec.to_builtins(left.resource.status)
    given = spots.SPEC | spec
    return {"apiVersion": "headroom.dev/v1alpha1", "kind": "Spotpool", "metadata": metadata} | {
        "spec": given,
        "status": status,
    }


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RealClock, "now", lambda _: NOON_MS)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Served]:
    with fleet_behind_a_port(tmp_path) as made:
        made.put(a_document(spots.troubled()))
        yield made


def test_a_pool_says_what_each_slot_is_doing_and_what_rests(headroom: Headroom, fleet: Served) -> None:
    done = headroom("explain", "sp/team-a/inference", "--kubeconfig", fleet.kubeconfig())
    lines = [line.split() for line in done.out.splitlines()]
    assert "Machines      4 of 1 to 6: 1 Launching, 1 Cancelling, 2 Running, 1 Draining, 1 Ending" in done.out
    assert "Offers        g5.12xlarge, g6.12xlarge in us-east-1a, us-east-1b (aws)" in done.out
    assert "Cost          $6.25 an hour, for machines with a known price" in done.out
    assert "Bought        3 machines in the last hour" in done.out
    assert "Never joined  3 machines in a row; no machine is launched before 2026-11-15T12:20:00Z" in done.out
    first = next(line for line in lines if line[:2] == ["0", "Running"])
    assert first[3:] == ["i-000", "g5.12xlarge", "us-east-1a", "spot-0", "$2.2/h"]
    assert "the cloud reclaims it at 2026-11-15T12:02:30Z" in done.out
    assert ["g6.12xlarge", "all", "zones", "QuotaReached", "1", "2026-11-15T12:04:00Z"] in lines
    assert "It needs 16 nvidia.com/gpu and 4 are there." in done.out
    assert ["i-lost", "2026-11-15T11:00:00Z"] in lines


def test_one_machine_is_asked_by_its_clouds_id(headroom: Headroom, fleet: Served) -> None:
    done = headroom("explain", "instance/i-003", "--kubeconfig", fleet.kubeconfig())
    assert done.out.splitlines() == [
        "Instance i-003 (g5.12xlarge in us-east-1a), slot 3 of Spotpool/team-a/inference, is Draining since 2026-11-15T11:59:30Z.",
        "- node spot-3, not ready yet",
        "- costs $2.2 an hour",
        "- the cloud reclaims it at 2026-11-15T12:02:30Z",
        "- Spotpool/team-a/inference: All is well.",
    ]
    found = json.loads(headroom("explain", "instance/i-003", "-o", "json", "--kubeconfig", fleet.kubeconfig()).out)
    assert (found["pool"], found["source"], found["slot"]["slot"]) == ("team-a/inference", "written", 3)


def test_a_machine_that_no_pool_has_is_offered_another(headroom: Headroom, fleet: Served) -> None:
    done = headroom("explain", "instance/i-033", "--kubeconfig", fleet.kubeconfig())
    assert done.code == 2
    assert "looking for instance i-033: no Spotpool has it (did you mean i-003 or" in done.err


def test_the_fleet_lists_spot_pools_and_those_that_need_a_look_first(headroom: Headroom, fleet: Served) -> None:
    fleet.put(a_document(spots.a_spot_pool("able", slots=spots.SLOTS[:2])))
    lines = headroom("status", "--kubeconfig", fleet.kubeconfig()).out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("SPOT POOL"))
    assert lines[head].split() == ["SPOT", "POOL", "RUNNING", "LAUNCHING", "LEAVING", "RANGE", "COST", "STATE", "WHY"]
    assert lines[head + 1].split()[:7] == ["team-a/inference", "2", "1", "3", "1..6", "$6.25/h", "JoinFailing"]
    assert "team-a/able" in "".join(lines[head + 2 :])
    assert not [line for line in lines if line.startswith("Spotpool:")], "told in their own table"


SPOT: dict[str, Any] = {
    "apiVersion": "headroom.dev/v1alpha1",
    "kind": "Spotpool",
    "metadata": {"name": "burst", "namespace": "lab"},
    "spec": spots.SPEC | {"minimum": 0, "maxPricePerHour": "9", "template": {"gpuCount": 8}},
}


def explained(headroom: Headroom, *documents: dict[str, Any]) -> str:
    """What is said of a pending pod that asks for 8 GPUs, in files."""
    fleet = [each for each in yaml.safe_load_all(FLEET.read_text()) if not each["kind"].lower().endswith("pool")]
    wide = next(each for each in fleet if each["metadata"]["name"] == "wide")
    wide["spec"]["tolerations"] = [{"key": "headroom.dev/spotpool", "operator": "Exists"}]
    given = yaml.safe_dump_all([*fleet, *documents]).encode()
    return headroom("explain", "pod/lab/wide", "-f", "-", "--now", NOON, stdin=given).out


def test_a_pending_pod_is_told_which_machine_is_launched_or_why_none_is(headroom: Headroom) -> None:
    spec = {key: value for key, value in SPOT["spec"].items() if key != "maxPricePerHour"}
    said = explained(headroom, SPOT | {"spec": spec})
    assert "A machine of Spotpool/lab/burst (g5.12xlarge in us-east-1a) is launched for it next." in said
    said = explained(headroom, SPOT)
    assert "Spotpool/lab/burst launches no machine for it: no machine can be launched now:" in said
    power = next(each for each in yaml.safe_load_all(FLEET.read_text()) if each["kind"] == "PowerPool")
    power["spec"]["paused"] = True
    both = explained(headroom, SPOT, power)
    assert "PowerPool/basement wakes no machine for it" in both
    assert "- Spotpool/lab/burst launches no machine for it" in both


def test_who_may_not_list_pools_is_told_so(headroom: Headroom, fleet: Served) -> None:
    done = headroom("explain", "instance/i-003", "--kubeconfig", fleet.kubeconfig("half", SEES_POOLS))
    assert done.code == 0
    done = headroom("explain", "instance/i-003", "--kubeconfig", fleet.kubeconfig("tenant", SEES_NOTHING))
    assert (done.code, "you may not list them" in done.err) == (2, True)


def test_who_sees_only_the_own_namespace_hears_what_its_pools_say_of_a_pod(headroom: Headroom, fleet: Served) -> None:
    says = {"pod": "lab/wide", "pods": 1, "reason": "SoldOut", "message": "Nothing can be launched now."}
    fleet.put(SPOT | {"status": {"unserved": [says]}})
    sees = (Right(verbs=("get", "list"), resources=("pods", "spotpools"), namespaces=("lab",)),)
    done = headroom("explain", "pod/lab/wide", "--kubeconfig", fleet.kubeconfig("tenant", sees))
    said = "Spotpool/lab/burst launches no machine for it: Nothing can be launched now."
    assert said in done.out.splitlines()[0]
    assert "not checked for lack of permission: " in done.out
    everything_else = Right(verbs=("get", "list"), resources=("pods", "nodes", "powerpools"), namespaces=("*",))
    done = headroom("explain", "pod/lab/wide", "--kubeconfig", fleet.kubeconfig("none", (everything_else,)))
    assert said not in done.out
    assert "is to be woken for it" not in done.out, "another pool may come first"
    assert "spotpools" in done.out


def test_check_says_what_is_dubious_what_is_called_and_what_secrets_must_say(headroom: Headroom) -> None:
    gateway = {"adminUrl": "https://kong.example.com:8444", "upstream": "llm", "tokenSecretRef": {"name": "kong"}}
    pool = a_document(spots.a_spot_pool(), zones=["us-east-1a"], maxSurge=0, gateway=gateway)
    webhook = a_document(spots.a_spot_pool("other"), provider="webhook", endpoint="https://broker.example.com/v1")
    done = headroom("check", "-", stdin=yaml.safe_dump_all([pool, webhook]).encode())
    assert done.code == 0
    assert "warning: spec.maxSurge is 0" in done.out
    assert "--allow-egress https://broker.example.com,https://kong.example.com:8444" in done.err
    host = "https://ec2.us-east-1.amazonaws.com"
    assert f"Secret team-a/spot-keys: headroom.dev/usable-by: Spotpool/team-a/inference@{host},Spotpool/team-a/other@https://broker.example.com" in done.err  # fmt: skip
    assert "Secret team-a/kong: headroom.dev/usable-by: Spotpool/team-a/inference@https://kong.example.com:8444" in done.err  # fmt: skip


def test_the_host_is_the_one_that_the_operators_setting_names(
    headroom: Headroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the operator refuses the Secret whose annotation was printed here."""
    moved = "aws-ec2=http://10.0.0.5:5000,tencent=https://cvm.internal"
    monkeypatch.setenv("HEADROOM_CLOUD_ENDPOINTS", moved)
    pools = [a_document(spots.a_spot_pool()), a_document(spots.a_spot_pool("other"), provider="tencent")]
    done = headroom("check", "-", stdin=yaml.safe_dump_all(pools).encode())
    assert "Spotpool/team-a/inference@http://10.0.0.5:5000,Spotpool/team-a/other@https://cvm.internal" in done.err
    assert "amazonaws.com" not in done.err
    monkeypatch.setenv("HEADROOM_CLOUD_ENDPOINTS", "aws-ec2")
    assert headroom("check", "-", stdin=yaml.safe_dump_all(pools).encode()).code == 2


def test_an_address_that_is_never_called_is_refused(headroom: Headroom) -> None:
    webhook = a_document(spots.a_spot_pool(), provider="webhook", endpoint="https://user:pass@broker.example.com")
    done = headroom("check", "-", stdin=yaml.safe_dump(webhook).encode())
    assert done.code == 1
    assert "spec.endpoint" in done.out
