"""Our policies on bandwidth: the simulator's twin of them adds and refuses what the API server does, word for word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from headroom.api.bandwidth import MARKER, TRAFFIC
from headroom.api.bandwidth_config import LOCALITY, BandwidthConfigSpec
from headroom.api.policies import RATES
from headroom.api.policies.bandwidth import EDITED, MALFORMED, NO_LABEL, NO_TRAFFIC
from headroom.api.quantities import NANO, nano
from headroom.core.bandwidth.configuring import config_of
from headroom.model.bandwidth import MEGABIT, BandwidthRules, Rates
from tests.contracts.cluster import Cluster
from tests.contracts.objects import Document, pod
from tests.contracts.test_hold import cluster, denied, make, patch, policed_server

__all__ = ["cluster", "policed_server"]

EGRESS, INGRESS = "kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth"
OVN_EGRESS = "ovn.kubernetes.io/egress_rate"
KIND = "BandwidthConfig"
DEFAULTS = Rates(20 * MEGABIT, 20 * MEGABIT)


@pytest.fixture(params=["Native", "Extender", "Off"])
async def mode(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[str]:
    """A mode that the policies know."""
    await configure(cluster, BandwidthRules(mode=request.param))
    yield request.param
    await cluster.ask("DELETE", cluster.path(KIND))


async def configure(cluster: Cluster, rules: BandwidthRules) -> None:
    """Have the policies know these rules: they are asked until they say so."""
    spec = msgspec.to_builtins(config_of(rules))
    document = {"apiVersion": "headroom.dev/v1alpha1", "kind": KIND, "metadata": {"name": "headroom"}}
    await cluster.ask("DELETE", cluster.path(KIND))
    await cluster.create(document | {"spec": spec})
    wanted = {"Native": "headroom.dev/egress-mbps", "Extender": MARKER, "Off": None}[rules.mode]

    async def known() -> bool:
        refused = await cluster.ask("POST", cluster.path("Pod"), asking(**{EGRESS: "x"}), query={"dryRun": "All"})
        if refused.status != 403:
            return False
        found = await make(cluster, asking(**{EGRESS: "1M"}), dry=True)
        has_default = INGRESS in found["metadata"]["annotations"]
        return (wanted is None or wanted in asked(found)) and has_default == bool(rules.defaults)

    await cluster.until(known, "the rules are known")


def asking(**annotations: str) -> Document:
    return pod("p", labels={"app": "web"}, annotations=annotations)


def asked(made: Document) -> dict[str, int]:
    """What the first container asks for of ours, as a number and not as the server spells it."""
    resources = made["spec"]["containers"][0]["resources"]
    assert {k: v for k, v in resources["requests"].items() if "headroom" in k} == {
        k: v for k, v in resources["limits"].items() if "headroom" in k
    }
    found = {name: nano(each) for name, each in resources["requests"].items() if name.startswith("headroom.dev/")}
    return {name: each // NANO for name, each in found.items() if isinstance(each, int)}


def native(egress: int = 0, ingress: int = 0) -> dict[str, int]:
    both = {"egress": egress, "ingress": ingress}
    return {f"headroom.dev/{way}-mbps": n for way, n in both.items() if n}


@pytest.mark.parametrize(
    ("annotations", "egress", "ingress"),
    [
        ({EGRESS: "1500k"}, 2, 0),
        ({EGRESS: "100M", INGRESS: "1G"}, 100, 1000),
        ({OVN_EGRESS: "2.5", INGRESS: "1k"}, 3, 1),
        ({EGRESS: "3M", OVN_EGRESS: "500"}, 3, 0),
    ],
)
async def test_rates_become_what_the_mode_needs(
    cluster: Cluster, mode: str, annotations: Any, egress: int, ingress: int
) -> None:
    made = await make(cluster, asking(**annotations), dry=True)
    expected = {"Native": native(egress, ingress), "Extender": {MARKER: 1}, "Off": {}}[mode]
    assert asked(made) == expected
    assert made["metadata"]["annotations"] == annotations


async def test_what_is_requested_by_hand_makes_no_rate_smaller(cluster: Cluster, mode: str) -> None:
    """In the first container it is set right; in others it comes on top. Neither a node nor resources of the whole pod change that."""
    by_hand = dict.fromkeys(("headroom.dev/egress-mbps", MARKER), "1")
    document = asking(**{EGRESS: "100M"})
    (first,) = document["spec"]["containers"]
    more = {"image": first["image"], "resources": {"requests": {**by_hand}, "limits": {**by_hand}}}
    first["resources"] = {"requests": {**by_hand}, "limits": {**by_hand}}
    document["spec"] |= {
        "nodeName": "elsewhere",
        "initContainers": [{"name": "before"} | more],
        "containers": [first, {"name": "beside"} | more],
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
    }
    made = await make(cluster, document, dry=True)
    assert asked(made) == {"headroom.dev/egress-mbps": 100 if mode == "Native" else 1, MARKER: 1}
    assert made["spec"]["containers"][1]["resources"]["requests"] == by_hand


@pytest.mark.parametrize(
    ("key", "value", "example"),
    [(EGRESS, "fast", "100M"), (INGRESS, "-5M", "100M"), (OVN_EGRESS, "100M", "100"), (EGRESS, "x\ny" * 30, "100M")],
)
async def test_a_rate_that_nobody_can_read_is_refused_in_every_mode(
    cluster: Cluster, mode: str, key: str, value: str, example: str
) -> None:
    shown = (value[:40] + "..." if len(value) > 40 else value).replace("\n", " ")
    values = {"key": key, "value": shown, "example": example}
    wrong = make(cluster, asking(**{INGRESS: "1M", key: value}), "admin")
    await denied(wrong, RATES, MALFORMED, f"{cluster.namespace}/p", **values)
    assert mode


async def test_marks_of_ours_mean_something(cluster: Cluster, mode: str) -> None:
    name = f"{cluster.namespace}/p"
    await denied(make(cluster, asking(**{TRAFFIC: "all"})), RATES, NO_TRAFFIC, name, key=TRAFFIC, value="all")
    await denied(make(cluster, asking(**{LOCALITY: "team"})), RATES, NO_LABEL, name, key=LOCALITY, value="team")
    assert asked(await make(cluster, asking(**{TRAFFIC: "siblings"}), dry=True)) == {}
    near = await make(cluster, asking(**{LOCALITY: "app", EGRESS: "1M"}), dry=True)
    assert ("affinity" in near["spec"]) == (mode == "Native")


async def test_a_pod_is_rather_placed_near_those_with_its_label(cluster: Cluster) -> None:
    await configure(cluster, BandwidthRules(mode="Native"))
    document = asking(**{LOCALITY: "app", EGRESS: "1M"})
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    spread = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    for before, after in (
        ({}, {"podAffinity": preferred}),
        ({"podAntiAffinity": spread}, {"podAntiAffinity": spread, "podAffinity": preferred}),
        ({"podAffinity": spread}, {"podAffinity": spread | preferred}),
    ):
        document["spec"] |= {"affinity": before}
        assert (await make(cluster, document, dry=True))["spec"]["affinity"] == after
    term = term | {"topologyKey": "zone"}
    own = {"podAffinity": {next(iter(preferred)): [{"weight": 1, "podAffinityTerm": term}]}}
    document["spec"] |= {"affinity": own}
    assert (await make(cluster, document, dry=True))["spec"]["affinity"] == own
    await cluster.ask("DELETE", cluster.path(KIND))


async def test_pods_get_the_defaults_in_their_annotations(cluster: Cluster) -> None:
    await configure(cluster, BandwidthRules(mode="Native", defaults=DEFAULTS))
    made = await make(cluster, pod("p"), dry=True)
    assert (made["metadata"]["annotations"], asked(made)) == ({EGRESS: "20M", INGRESS: "20M"}, native(20, 20))
    made = await make(cluster, asking(**{OVN_EGRESS: "7"}), dry=True)
    assert made["metadata"]["annotations"] == {OVN_EGRESS: "7", INGRESS: "20M"}
    on_host = pod("p")
    on_host["spec"]["hostNetwork"] = True
    made = await make(cluster, on_host, dry=True)
    assert "annotations" not in made["metadata"] or EGRESS not in made["metadata"]["annotations"]
    await cluster.ask("DELETE", cluster.path(KIND))


async def test_rates_stay_while_they_place_the_pod(cluster: Cluster, mode: str) -> None:
    made = await make(cluster, asking(**{EGRESS: "1M"}))
    name = f"{cluster.namespace}/p"

    def change(user: str, **annotations: str | None) -> Any:
        return patch(cluster, made, {"metadata": {"annotations": annotations}}, user)

    for key, value in ((EGRESS, "2M"), (EGRESS, None), (INGRESS, "1M"), (TRAFFIC, "siblings")):
        if mode == "Off":
            await change("editor", **{key: value})
        else:
            await denied(change("editor", **{key: value}), RATES, EDITED, name, key=key)
            await change("releaser", **{key: value})
    await change("editor", **{"example.com/note": "x"})


def test_settings_are_written_as_the_kind_has_them() -> None:
    assert msgspec.convert(msgspec.to_builtins(config_of(BandwidthRules())), BandwidthConfigSpec).mode == "Off"
