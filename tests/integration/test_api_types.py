"""The CRDs on a real API server, and whether it and `problems` give the same verdict on the same document, field by field."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from headroom.api import generate, kinds
from headroom.api.bandwidth import (
    BandwidthStatus,
    LinkQuantities,
    LinksLeft,
    LinksUsed,
    RateQuantities,
    RatesLeft,
    RatesUsed,
    Reservation,
)
from headroom.api.budgets import Forecast, GPUWorkloadBudgetStatus, RoundedUsage, TopPod
from headroom.api.enforcement import EnteredStep, QueuedUnit, QueueStatus, Stopped, Victim
from headroom.api.kinds import KINDS
from headroom.api.offers_status import LeftoverNodePoolStatus
from headroom.api.power_status import MachineStatus, PowerPoolStatus
from headroom.api.releases import ReleaseRequestStatus
from headroom.api.resources import Condition, Status
from headroom.api.spot_pools_status import Orphan, PoolInstance, Purchases, Slot, SoldOut, SpotpoolStatus
from tests.api.cases import At
from tests.api.document_cases import ACCEPTED, REFUSED, SEED_SAMPLES
from tests.api.documents import any_type_anywhere, as_json, at_the_limits, put, several_at_once
from tests.api.field_cases import FIELDS, FULL
from tests.api.verdicts import Server, disagreement, disagreements, path_of
from tests.control_plane import ControlPlane, wait_until

NAMESPACE = "api-types"
KINDS_AND_FIELDS = [(kind, path) for kind, fields in FIELDS.items() for path in fields]

_READY = Condition(
    type="Ready", status="True", reason="Reconciled", message="fine", last_transition_time="2026-01-31T12:00:00Z"
)
STATUSES: dict[str, Status] = {
    "GPUWorkloadBudget": GPUWorkloadBudgetStatus(
        observed_generation=3,
        conditions=(_READY,),
        consumed_gpu_hours="12.499998781111",
        remaining_gpu_hours="87.500001218889",
        upper_gpu_hours="13",
        burn_rate_gpus="3.5",
        as_of="2026-01-31T12:00:00.250Z",
        consumed_usd="4.25",
        unpriced_gpu_hours="0",
        rounded=RoundedUsage(
            consumed_gpu_hours="12.5", remaining_gpu_hours="87.5", burn_rate_gpus="3.5", consumed_usd="4.25"
        ),
        forecast=Forecast(exhausted_at="2026-02-01T13:00:00Z"),
        top_pods=(TopPod(pod="team-a/train-0", gpu_hours="7.5", usd="2"), TopPod(pod="team-a/b", gpu_hours="5")),
        tracked_pods=4,
        last_enforcement_at="2026-01-31T11:58:00Z",
        steps=(
            EnteredStep(at="80%", action="AlertOnly", since="2026-01-31T08:00:00Z"),
            EnteredStep(at="100%", action="Hold", since="2026-01-31T11:00:00Z"),
        ),
        held=QueueStatus(
            units=2,
            pods=3,
            queue=(
                QueuedUnit(
                    unit="Job/team-a/fit",
                    gpus="2",
                    pods=2,
                    since="2026-01-31T11:10:00Z",
                    starts_at="2026-01-31T14:00:00Z",
                    state="Reserved",
                ),
                QueuedUnit(unit="Pod/team-a/big", gpus="64", pods=1, state="NeverFits"),
            ),
        ),
        victim=Victim(
            unit="Job/team-a/x", action="Evict", at="2026-01-31T11:59:00Z", uids=("u",), pods=("team-a/x-0",), by="a/b"
        ),
        stopped=(
            Stopped(unit="Pod/team-a/y", action="Evict", at="2026-01-31T11:58:00Z", pods=("team-a/y",)),
            Stopped(unit="Pod/team-a/z", action="Evict", at="2026-01-31T11:50:00Z", outcome="Blocked"),
        ),
    ),
    "Spotpool": SpotpoolStatus(
        conditions=(_READY,),
        size=0,
        instances=(PoolInstance(instance_id="ins-1"),),
        slots=(
            Slot(slot=0, state="Launching", token="t-1", since="2026-01-31T12:00:00Z"),
            Slot(slot=3, state="Running"),
        ),
        purchases=(Purchases(minute="2026-01-31T12:00:00Z", count=2),),
        sold_out=(SoldOut(instance_type="GN7.2XLARGE32", zone="*", failures=1, reason="QuotaReached"),),
        orphans=(Orphan(instance_id="ins-9", since="2026-01-31T12:00:00Z"),),
        orphan_count=1,
    ),
    "PowerPool": PowerPoolStatus(conditions=(_READY,), machines=(MachineStatus(name="gpu-worker-1", state="On"),)),
    "Bandwidth": BandwidthStatus(
        conditions=(_READY,),
        status="Created",
        capacity=LinkQuantities(local=RateQuantities(ul_mbps=20000), network=RateQuantities(ul_mbps=1000)),
        used=LinksUsed(network=RatesUsed(ul_mbps=1200)),
        remaining=LinksLeft(network=RatesLeft(ul_mbps=-200)),
        reservations=(Reservation(pod_uid="u-1", bandwidth=LinkQuantities(local=RateQuantities(dl_mbps=5))),),
    ),
    "LeftoverNodePool": LeftoverNodePoolStatus(
        conditions=(_READY,),
        selected_instance_types=("g5.xlarge",),
        selected_zones=("a",),
        last_price_usd="0.4021",
        last_score=7,
    ),
    "ReleaseRequest": ReleaseRequestStatus(
        conditions=(_READY,),
        phase="Releasing",
        reason="Releasing",
        message="Releasing.",
        judged_at="2026-01-31T12:00:00Z",
        pods_released=2,
        budgets=("lab/team-a",),
        targets=("Pod/u",),
    ),
}


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with our CRDs, as they stand in deploy/crds."""
    files = (generate.ROOT / "deploy" / "crds").glob("*.yaml")
    control_plane.apply(*(yaml.safe_load(path.read_text()) for path in sorted(files)))
    names = [f"crd/{kind.plural}.headroom.dev" for kind in KINDS.values()]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=300s", *names)
    return control_plane


@pytest.fixture(scope="module")
def server(plane: ControlPlane) -> Iterator[Server]:
    server = Server(plane)
    # Established says that the server knows the kind; the address may still take a moment.
    wait_until(lambda: all(server.try_to_create(each)[0] for each in FULL.values()), "every kind can be created")
    yield server
    server.close()


@pytest.fixture(scope="module")
def stored(plane: ControlPlane, server: Server) -> Iterator[dict[str, dict[str, Any]]]:
    """One object of each kind with a status, as the server gives it back."""
    plane.kubectl("create", "namespace", NAMESPACE)
    objects = {}
    for kind, document in FULL.items():
        # The name is not that of a node which another test may have.
        name = "api-types-1"
        mine = put(put(document, "metadata", {"name": name, "namespace": NAMESPACE}), "spec.paused", value=True)
        mine = put(mine, "spec.node", name) if kind == "Bandwidth" else mine
        code, created = server.send("POST", path_of(mine), as_json(mine))
        assert code == 201, created
        created["status"] = msgspec.to_builtins(STATUSES[kind])
        code, objects[kind] = server.send(
            "PUT", path_of(mine, name=name) + "/status?fieldValidation=Strict", json.dumps(created)
        )
        assert code == 200, objects[kind]
    yield objects
    for kind in FULL:
        server.send("DELETE", path_of(objects[kind], name=objects[kind]["metadata"]["name"]))
    plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.mark.parametrize(("kind", "path"), KINDS_AND_FIELDS)
def test_the_server_and_we_agree_on_every_field(server: Server, kind: str, path: str) -> None:
    cases, base = FIELDS[kind][path], FULL[kind]
    for other, value in cases.beside.items():
        base = put(base, other, value)
    valid = [(f"{path} = {value!r}", put(base, path, value)) for value in cases.valid]
    plain = [each.value if isinstance(each, At) else each for each in cases.invalid]
    invalid = [(f"{path} = {value!r}", put(base, path, value)) for value in plain]
    assert disagreements(server, valid, accepted=True) == []
    assert disagreements(server, invalid, accepted=False) == []


@pytest.mark.parametrize("name", ACCEPTED)
def test_both_accept(server: Server, name: str) -> None:
    assert disagreement(server, ACCEPTED[name], accepted=True) == ""


@pytest.mark.parametrize("name", REFUSED)
def test_both_refuse(server: Server, name: str) -> None:
    assert disagreement(server, REFUSED[name], accepted=False) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_the_seeds_own_sample_is_accepted(server: Server, kind: str) -> None:
    assert disagreement(server, SEED_SAMPLES[kind], accepted=True) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_they_agree_on_any_type_anywhere(server: Server, kind: str) -> None:
    assert disagreements(server, any_type_anywhere(kind)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_they_agree_at_every_limit(server: Server, kind: str) -> None:
    assert disagreements(server, at_the_limits(kind)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_they_agree_on_several_mistakes_at_once(server: Server, kind: str) -> None:
    assert disagreements(server, several_at_once(kind, count=100)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_fills_in_the_defaults_of_the_types(server: Server, kind: str) -> None:
    samples = [FULL[kind], SEED_SAMPLES[kind], *(each for each in ACCEPTED.values() if each["kind"] == kind)]
    for document in samples:
        sent = json.loads(as_json(document))["spec"]
        accepted, answer = server.try_to_create(document)
        assert accepted, answer
        assert kinds.spec_of(kind, answer["spec"]) == kinds.spec_of(kind, sent)


@pytest.mark.parametrize("kind", KINDS)
def test_an_accepted_value_can_be_read(server: Server, kind: str) -> None:
    for path, cases in FIELDS[kind].items():
        base = FULL[kind]
        for other, value in cases.beside.items():
            base = put(base, other, value)
        for value in cases.valid:
            document = json.loads(as_json(put(base, path, value)))
            _, answer = server.try_to_create(document)
            assert kinds.spec_of(kind, document["spec"]) == kinds.spec_of(kind, answer["spec"]), (path, value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_status_comes_back_as_it_was_written(stored: dict[str, dict[str, Any]], kind: str) -> None:
    assert kinds.status_of(kind, stored[kind]["status"]) == STATUSES[kind]
    assert kinds.problems(stored[kind]) == []
    assert stored[kind]["metadata"]["generation"] == 1, "writing a status does not change the generation"


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_of_the_object_leaves_the_status_alone(
    server: Server, stored: dict[str, dict[str, Any]], kind: str
) -> None:
    changed = {key: value for key, value in stored[kind].items() if key != "status"}
    path = path_of(changed, name=changed["metadata"]["name"])
    code, answer = server.send("PUT", path + "?dryRun=All", json.dumps(changed | {"status": {}}))
    assert code == 200, answer
    assert answer["status"] == stored[kind]["status"]


def _first_row(table: str) -> dict[str, str]:
    """The cells of a table's first row by their columns; a cell may be empty, so they are told apart by where they stand."""
    header, row, *_ = table.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", header)]
    places = zip(starts, [*starts[1:], None], strict=True)
    return {header[start:end].strip(): row[start:end].strip() for start, end in places}


def test_kubectl_shows_the_columns(plane: ControlPlane, stored: dict[str, dict[str, Any]]) -> None:
    shown = plane.kubectl("get", "gwb,sp,pp,bw,lonp,rr", "-n", NAMESPACE, "-o", "wide")
    tables = [_first_row(table) for table in shown.strip().split("\n\n")]
    by_kind = {row["NAME"].partition(".")[0]: row for row in tables}
    assert (
        by_kind["gpuworkloadbudget"].items()
        >= {"CONSUMED": "12.5", "REMAINING": "87.5", "WINDOW": "24", "PODS": "4", "BURN": "3.5", "USD": "4.25"}.items()
    )
    assert by_kind["spotpool"].items() >= {"MIN": "2", "MAX": "4", "SIZE": "0", "READY": "True"}.items()
    assert by_kind["powerpool"].items() >= {"IDLE": "300", "MINON": "1", "READY": "True"}.items()
    assert by_kind["bandwidth"].items() >= {"UL": "1000", "UUL": "1200", "LUL": "20000", "STATE": "Created"}.items()
    assert by_kind["releaserequest"].items() >= {"KIND": "Job", "TARGET": "train", "PHASE": "Releasing"}.items()
    assert by_kind["leftovernodepool"].items() >= {"REGION": "us-east-1", "PRICE": "0.4021", "SCORE": "7"}.items()


def test_kubectl_finds_all_kinds_by_category(plane: ControlPlane, stored: dict[str, dict[str, Any]]) -> None:
    for category in ("headroom", "gpu"):
        shown = plane.kubectl("get", category, "-n", NAMESPACE, "-o", "name").split()
        ours = {line.partition(".")[0] for line in shown if line.endswith("/api-types-1")}
        assert ours == {kind.lower() for kind in KINDS}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("gwb", "rolling-window budget"),
        ("gwb.spec.quota", "The GPU-hours and dollars that these pods may use"),
        ("gwb.spec.quota", "Length of the rolling window that ends now"),
        ("sp.spec.credentialsSecretRef", "The Secret with the cloud's keys"),
        ("pp.spec.machines.scaleUpEndpoint", "Called with POST to switch the machine on"),
        ("bw.spec.capacity.network", "The network card"),
        ("rr.spec.target", "a pod, or an owner or gang with all its queued pods"),
        ("lonp.spec.minSpotScore", "The lowest acceptable placement score"),
    ],
)
def test_kubectl_explains(plane: ControlPlane, path: str, words: str) -> None:
    assert words in " ".join(plane.kubectl("explain", path).split())
