"""The extender's server: kube-scheduler's questions and answers, when it answers at all, and its certificate."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from cryptography import x509

from headroom.core.bandwidth.holds import PodAsk
from headroom.core.bandwidth.placement import HOLD_MS, Placement
from headroom.core.bandwidth.touching import Touch, Touching
from headroom.model.bandwidth import BandwidthRules
from headroom.model.errors import Refused
from headroom.runtime.logs import Silent
from headroom.web import certificate
from headroom.web.extender import tls
from headroom.web.extender.app import LARGEST_BODY, extender_app, health_app
from headroom.web.extender.service import Extender
from headroom.web.extender.tls import Pair
from headroom.web.extender.wire import MOST_NAMES
from tests.certificates import Authority
from tests.web.racing import StillClock

M = 10**6
CAPACITY = (20_000 * M, 20_000 * M, 1_000 * M, 1_000 * M)
Document = dict[str, Any]
Client = TestClient[web.Request, web.Application]


class Stage:
    """An extender that leads and sees all, unless it is told otherwise."""

    def __init__(self) -> None:
        self.clock, self.leads, self.unseen = StillClock(), True, ""
        self.heard: float | None = None
        self.placement = Placement()
        self.extender = Extender(
            Touching(self.placement), BandwidthRules(), clock=self.clock, log=Silent(), leads=lambda: self.leads
        )
        self.extender.watch(
            lambda: self.unseen,
            lambda: self.clock.seconds if self.heard is None else self.heard,
            lambda uid: f"team/{uid}",
        )
        for name in ("a", "b"):
            self.placement.set_node(name, CAPACITY)

    def settle(self) -> Stage:
        self.extender.look()
        return self


def question(uid: str = "one", rate: str | None = "600M", names: list[str] | None = None, **more: Any) -> Document:
    notes = {} if rate is None else {"kubernetes.io/egress-bandwidth": rate, "kubernetes.io/ingress-bandwidth": rate}
    pod = {"metadata": {"uid": uid, "name": uid, "namespace": "team", "annotations": notes}, "spec": {}}
    return {"Pod": pod, "NodeNames": ["a", "b", "gone"] if names is None else names, "Nodes": None, **more}


@pytest.fixture
def stage() -> Stage:
    return Stage().settle()


@pytest.fixture
async def client(stage: Stage) -> AsyncIterator[Client]:
    async with TestClient(TestServer(extender_app(stage.extender, stage.extender.metrics))) as made:
        yield made


async def asked(client: Client, document: object, verb: str = "filter") -> tuple[int, Any]:
    answer = await client.post(f"/{verb}", data=json.dumps(document).encode())
    text = await answer.text()
    return answer.status, json.loads(text) if answer.content_type == "application/json" else text


# --- questions ----------------------------------------------------------------------------------------------------------------------


async def test_every_refused_node_is_in_the_answer_with_its_reason(client: Client) -> None:
    """Not those that would have done: kube-scheduler has no use for thousands of them."""
    status, found = await asked(client, question())
    assert (status, found["NodeNames"], found["Error"], found["Nodes"]) == (200, ["a"], "", None)
    assert found["FailedNodes"] == {"gone": "Node unknown to the bandwidth extender, or gone"}
    assert found["FailedAndUnresolvableNodes"] == {}


async def test_where_no_node_is_left_preemption_is_no_remedy(client: Client) -> None:
    found = (await asked(client, question(rate="2G", names=["a", "gone"])))[1]
    assert (found["NodeNames"], found["FailedNodes"]) == ([], {})
    assert found["FailedAndUnresolvableNodes"] == {
        "a": "Insufficient network ingress bandwidth (the pod requests 2000 Mbps)",
        "gone": "Node unknown to the bandwidth extender, or gone",
    }


async def test_a_pod_without_bandwidth_may_go_anywhere(client: Client) -> None:
    assert (await asked(client, question(rate=None)))[1]["NodeNames"] == ["a", "b", "gone"]


async def test_a_value_that_nobody_can_read_counts_as_the_default(client: Client, stage: Stage) -> None:
    await asked(client, question(rate="100Gi-ish"))
    assert stage.placement.links.left_of("a")[2] == 980 * M


async def test_scores_are_told_for_every_node(client: Client) -> None:
    status, found = await asked(client, question(), "prioritize")
    assert (status, found) == (
        200,
        [{"Host": name, "Score": score} for name, score in zip("ab", (3, 3), strict=True)]
        + [{"Host": "gone", "Score": 0}],
    )


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (question() | {"NodeNames": None, "Nodes": {"items": []}}, "nodeCacheCapable: true"),
        (question(names=[]), "names no node"),
        (question(names=[str(number) for number in range(MOST_NAMES + 1)]), "names 20001 nodes"),
        (question() | {"Pod": None}, "no pod with a uid"),
        (question() | {"Pod": {"metadata": {}}}, "no pod with a uid"),
        ([], "reading the question"),
        (question() | {"NodeNames": [1]}, "reading the question"),
    ],
)
async def test_what_is_no_question_is_answered_with_what_is_wrong(
    client: Client, document: object, problem: str
) -> None:
    status, found = await asked(client, document)
    assert (status, found["NodeNames"]) == (200, None)
    assert problem in found["Error"]
    assert (await asked(client, document, "prioritize"))[0] == 400


def eviction(uid: str = "one", rate: str = "600M", victims: Any = None) -> Document:
    document = question(uid, rate)
    return {"Pod": document["Pod"], "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}


async def test_kube_scheduler_is_told_where_an_eviction_would_help(client: Client, stage: Stage) -> None:
    stage.placement.bound(PodAsk("stays", 600 * M, 600 * M), "a")
    victims = {"Pods": [{"UID": "other"}], "NumPDBViolations": 1}
    status, found = await asked(
        client, eviction(victims={"a": victims, "b": victims, "gone": victims, "c": {"Pods": None}}), "preempt"
    )
    assert (status, found) == (200, {"NodeNameToMetaVictims": {"b": victims}})


ENDLESS: Any = {str(number): {"Pods": []} for number in range(MOST_NAMES + 1)}


@pytest.mark.parametrize("victims", [None, {"a": {"Pods": [{"UID": 1}]}}, {"a": None}, ENDLESS])
async def test_what_names_no_victims_is_answered_with_what_is_wrong(client: Client, victims: Any) -> None:
    status, found = await asked(client, eviction(victims=victims), "preempt")
    assert (status, "reading the question" in found["Error"]) == (400, True)


async def test_a_standby_lets_nobody_be_evicted(client: Client, stage: Stage) -> None:
    stage.leads = False
    victims = {"Pods": [{"UID": "other"}], "NumPDBViolations": 0}
    assert (await asked(client, eviction(victims={"a": victims}), "preempt"))[0] == 503


async def test_a_question_that_is_too_large_is_not_read(client: Client) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(LARGEST_BODY // 2**20 + 1):
            yield b" " * 2**20

    assert (await client.post("/filter", data=endless())).status == 413


async def test_strange_pods_never_make_it_fail(client: Client) -> None:
    chance = random.Random(4)
    junk: list[Any] = [None, 1, -1, "x", [], {}, [1], {"a": 1}, "1e309", True, "９９M", "x" * 5000]
    for number in range(300):
        document = question(uid=f"pod-{number}")
        part = chance.choice((document["Pod"], document["Pod"]["metadata"], document["Pod"]["spec"]))
        part[
            chance.choice(
                ("annotations", "labels", "ownerReferences", "nodeName", "hostNetwork", "status", "namespace")
            )
        ] = chance.choice(junk)
        status, found = await asked(client, document)
        assert status == 200
        if found["Error"]:
            continue
        refused = {*found["FailedNodes"], *found["FailedAndUnresolvableNodes"]}
        assert "gone" in refused | {*found["NodeNames"]}
        assert found["NodeNames"] or refused == {"a", "b", "gone"}


# --- when it answers ----------------------------------------------------------------------------------------------------------------


async def test_nothing_is_answered_before_every_bound_pod_is_known(client: Client, stage: Stage) -> None:
    stage.unseen = "watching pods: no answer yet"
    assert (await asked(client, question()))[0] == 503
    assert (await client.get("/readyz")).status == 503
    assert (await client.get("/healthz")).status == 200
    stage.unseen = ""
    assert (await asked(client, question()))[0] == 200


async def test_a_standby_answers_nothing(client: Client, stage: Stage) -> None:
    stage.leads = False
    status, text = await asked(client, question())
    assert (status, stage.placement.holds) == (503, 0)
    assert "another extender holds the lease" in text.lower()


async def test_a_new_leader_waits_until_kube_scheduler_has_asked_about_every_pending_pod() -> None:
    stage = Stage()
    for uid in ("one", "two"):
        stage.placement.unbound(PodAsk(uid, 600 * M, 600 * M), 0)
    stage.settle()
    async with TestClient(TestServer(extender_app(stage.extender, stage.extender.metrics))) as client:
        status, text = await asked(client, question("one"))
        assert (status, "1 pending pods" in text) == (503, True)
        stage.placement.bound(PodAsk("two", 600 * M, 600 * M), "a")
        stage.extender.look()
        assert (await asked(client, question("one")))[1]["NodeNames"] == ["b"]


async def test_a_new_leader_waits_no_longer_than_a_hold_lasts() -> None:
    stage = Stage()
    stage.placement.unbound(PodAsk("one", 600 * M, 600 * M), 0)
    stage.settle()
    stage.clock.seconds += HOLD_MS / 1000 - 1
    assert stage.settle().extender.unready()
    stage.clock.seconds += 1
    assert not stage.settle().extender.unready()


async def test_no_hold_ends_while_the_watch_is_silent_and_may_hide_a_bind(client: Client, stage: Stage) -> None:
    await asked(client, question())
    stage.placement.unbound(PodAsk("one", 600 * M, 600 * M), 0)
    stage.heard = stage.clock.seconds + 1
    stage.clock.seconds += 2 * HOLD_MS / 1000
    stage.placement.expire(stage.extender.shown())
    assert (await asked(client, question("two", names=["a"])))[1]["NodeNames"] == []
    stage.heard = None
    stage.placement.expire(stage.extender.shown())
    assert (await asked(client, question("two", names=["a"])))[1]["NodeNames"] == ["a"]


async def test_no_hold_ends_between_the_first_of_what_comes_late_and_the_bind_in_it(stage: Stage) -> None:
    """The process stood still, and the watch has much to say at once."""
    stage.placement.unbound(PodAsk("one", 600 * M), 0)
    stage.placement.filter(PodAsk("one", 600 * M), ["a"], stage.extender.now())
    stage.heard, now = stage.clock.seconds, stage.clock.seconds + 2 * HOLD_MS / 1000
    looks = 0

    async def sleep(_seconds: float) -> None:
        nonlocal looks
        looks, stage.clock.seconds = looks + 1, now + looks
        if looks == 1:
            stage.heard = now
        elif looks == 2:
            stage.placement.bound(PodAsk("one", 600 * M), "a")
        else:
            raise asyncio.CancelledError

    stage.clock.sleep = sleep  # type: ignore[assignment]  # what happens between two looks
    with pytest.raises(asyncio.CancelledError):
        await stage.extender.run()
    assert (stage.placement.counts.binds, stage.placement.counts.late) == (1, 0)


async def test_a_question_makes_no_pod_smaller_than_the_watch_shows_it(client: Client, stage: Stage) -> None:
    """Kube-scheduler's view may be older; and without client certificates anybody may ask."""
    stage.placement.unbound(PodAsk("one", 600 * M, 10 * M, "team/StatefulSet.apps/web"), 0)
    note = question(rate="20M")
    note["Pod"]["metadata"]["annotations"]["headroom.dev/traffic"] = "siblings"
    note["Pod"]["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "Job", "name": "x", "uid": "x"}]
    await asked(client, note)
    assert stage.placement.links.left_of("a") == (19_400 * M, 19_980 * M, 400 * M, 980 * M)
    await asked(client, question(rate="900M"))
    assert stage.placement.links.left_of("a")[2:] == (100 * M, 100 * M)


async def test_whoever_loses_the_lease_settles_anew() -> None:
    stage = Stage().settle()
    assert not stage.extender.unready()
    stage.placement.unbound(PodAsk("one", 600 * M, 600 * M), 0)
    stage.leads = False
    stage.settle()
    stage.leads = True
    assert "1 pending pods" in stage.settle().extender.unready()


async def test_a_touch_that_hangs_hides_no_loss_of_the_lease() -> None:
    """Both are what a slow API server does; what another extender answered meanwhile is unknown here."""
    stage, hangs = Stage().settle(), asyncio.Event()
    ask = PodAsk("one", 600 * M, 600 * M)
    stage.placement.unbound(ask, 0)
    stage.extender.touching.refused(ask, "team/one", ["a"], stage.extender.now())

    async def sleep(seconds: float) -> None:
        stage.clock.seconds += seconds
        await asyncio.sleep(0)

    async def send(_touch: Touch) -> None:
        hangs.set()
        await asyncio.Event().wait()

    stage.clock.sleep = sleep  # type: ignore[method-assign]  # time that others may use
    running = [asyncio.create_task(each) for each in (stage.extender.run(), stage.extender.bring_back(send))]
    await hangs.wait()
    assert not stage.extender.unready()
    stage.leads = False
    for _ in range(20):
        await asyncio.sleep(0)
    stage.leads = True
    assert stage.extender.unready()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_numbers_are_told_without_names(stage: Stage) -> None:
    app = extender_app(stage.extender, stage.extender.metrics)
    async with TestClient(TestServer(app)) as client:
        await asked(client, question("secret-name"))
        await asked(client, question("other", rate="2G"))
    async with TestClient(TestServer(health_app(stage.extender, stage.extender.metrics))) as client:
        text = await (await client.get("/metrics")).text()
    for line in (
        "headroom_extender_holds 1.0",
        'headroom_extender_refusals_total{reason="NetworkDown"} 2.0',
        'headroom_extender_refusals_total{reason="Unknown"} 1.0',
        'headroom_extender_requests_total{verb="filter"} 2.0',
        "headroom_extender_active 1.0",
    ):
        assert line in text.splitlines()
    assert "secret-name" not in text


@pytest.mark.parametrize(
    ("user", "names", "status"),
    [("", "", 401), ("kubelet", "", 200), ("kubelet", "scheduler", 403), ("scheduler", "scheduler", 200)],
)
async def test_only_known_clients_are_answered(
    stage: Stage, tmp_path: Path, user: str, names: str, status: int
) -> None:
    authority = Authority(tmp_path)
    file, key = map(str, authority.server("extender"))
    secured = certificate.context(file, key, ())
    secured.trust(authority.file.read_text())
    app = extender_app(stage.extender, stage.extender.metrics, known_clients=True, names=names.split() and {names})
    shown = ssl.create_default_context(cafile=str(authority.file))
    if user:
        shown.load_cert_chain(*authority.client(user, []))
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=secured)
    client: Client = TestClient(server)
    async with client:
        answer = await client.post("/filter", data=json.dumps(question()).encode(), ssl=shown)
        assert (answer.status, stage.placement.holds) == (status, int(status == 200))
        assert (await client.get("/readyz", ssl=shown)).status == 200


# --- the certificate ----------------------------------------------------------------------------------------------------------------

NAMES = ("headroom-extender", "headroom-extender.headroom-system.svc")
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Kept:
    """A Secret."""

    def __init__(self, pair: Pair | None = None, *, is_late: bool = False) -> None:
        self.pair, self.writes, self._is_late = pair, 0, is_late

    async def read(self) -> Pair | None:
        return self.pair

    async def write(self, pair: Pair) -> None:
        if self._is_late:
            self.pair, self._is_late = tls.made(NAMES, NOW), False
            raise Refused("somebody was faster")
        self.pair, self.writes = pair, self.writes + 1


async def test_a_certificate_is_made_once_and_anew_at_two_thirds_by_the_same_authority() -> None:
    store = Kept()
    first = await tls.kept(store, NAMES, NOW)
    assert await tls.kept(store, NAMES, NOW + timedelta(days=59)) == first
    second = await tls.kept(store, NAMES, NOW + timedelta(days=61))
    assert (store.writes, second.authority, second.certificate != first.certificate) == (2, first.authority, True)
    signer = x509.load_pem_x509_certificate(first.authority.encode())
    for pair in (first, second):
        x509.load_pem_x509_certificate(pair.certificate.encode()).verify_directly_issued_by(signer)


async def test_one_that_a_clock_gone_wrong_made_for_the_future_is_made_anew() -> None:
    store = Kept(tls.made(NAMES, NOW + timedelta(days=10), tls.made(NAMES, NOW)))
    found = await tls.kept(store, NAMES, NOW)
    assert x509.load_pem_x509_certificate(found.certificate.encode()).not_valid_before_utc < NOW
    assert (await tls.kept(store, NAMES, NOW), store.writes) == (found, 1)


async def test_of_two_that_make_one_the_faster_counts() -> None:
    store = Kept(is_late=True)
    assert await tls.kept(store, NAMES, NOW) == store.pair
    assert store.writes == 0


async def test_a_certificate_that_lacks_a_name_or_cannot_be_read_is_made_anew() -> None:
    store = Kept(tls.made(("other",), NOW))
    before = store.pair
    assert before is not None
    assert (await tls.kept(store, NAMES, NOW)).authority == before.authority
    store = Kept(Pair("no", "such", "thing", ""))
    assert (await tls.kept(store, NAMES, NOW)).key
    assert store.writes == 1
