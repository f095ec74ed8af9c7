"""Who one is and what one may: tokens, rights, and how both are asked about."""

from __future__ import annotations

import pytest

from headroom.adapters.kube.errors import Forbidden, Unauthorized
from headroom.adapters.kube.reviews import RequiredRight, Reviews, lacking
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import Document, config_map, pod


@pytest.mark.parametrize("user", ["expired", "unknown"])
async def test_a_token_that_is_no_longer_or_never_was_known_is_unauthorized(cluster: Cluster, user: str) -> None:
    with refused(Unauthorized, 401, "Unauthorized"):
        await cluster.client(user).get(cluster.path("ConfigMap"))


async def test_a_missing_right_is_forbidden_and_the_verb_is_named(cluster: Cluster) -> None:
    nobody = cluster.client("nobody")
    for verb, call in {
        "list": nobody.get(cluster.path("ConfigMap")),
        "get": nobody.get(cluster.path("ConfigMap", "a")),
        "create": nobody.create(cluster.path("ConfigMap"), config_map("a")),
        "patch": nobody.merge_patch(cluster.path("ConfigMap", "a"), {}),
        "update": nobody.replace(cluster.path("ConfigMap", "a"), config_map("a")),
        "delete": nobody.delete(cluster.path("ConfigMap", "a")),
    }.items():
        with refused(Forbidden, 403, "Forbidden") as refusal:
            await call
        assert (refusal.value.verb, refusal.value.resource) == (verb, "configmaps")
        assert 'User "nobody" cannot' in refusal.value.message


async def test_a_missing_right_to_a_subresource_or_a_custom_kind_is_named_in_full(cluster: Cluster) -> None:
    nobody = cluster.client("nobody")
    await cluster.create(pod("a"))
    with refused(Forbidden, 403, "Forbidden") as refusal:
        await nobody.evict(cluster.namespace, "a", uid="")
    assert (refusal.value.verb, refusal.value.resource) == ("create", "pods/eviction")
    with refused(Forbidden, 403, "Forbidden") as refusal:
        await nobody.get(cluster.path("PowerPool"))
    assert (refusal.value.verb, refusal.value.resource) == ("list", "powerpools.headroom.dev")


async def review(cluster: Cluster, group: str, kind: str, spec: Document) -> Document:
    body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
    answer: Document = (await cluster.create(body))["status"]
    return answer


async def test_a_token_is_known_or_not(cluster: Cluster) -> None:
    known = await review(cluster, "authentication.k8s.io", "TokenReview", {"token": cluster.token("nobody")})
    assert known["authenticated"] is True
    assert known["user"]["username"] == "nobody"
    assert "system:authenticated" in known["user"]["groups"]
    for user in ("unknown", "expired"):
        stranger = await review(cluster, "authentication.k8s.io", "TokenReview", {"token": cluster.token(user)})
        assert not stranger.get("authenticated")


async def test_a_user_may_or_may_not(cluster: Cluster) -> None:
    asked = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": cluster.namespace}}
    group = "authorization.k8s.io"
    nobody = await review(cluster, group, "SubjectAccessReview", {"user": "nobody", **asked})
    assert nobody["allowed"] is False
    admin = await review(
        cluster, group, "SubjectAccessReview", {"user": "admin", "groups": ["system:masters"], **asked}
    )
    assert admin["allowed"] is True


async def test_the_adapter_says_who_somebody_is_and_what_they_may(cluster: Cluster) -> None:
    reviews = Reviews(cluster.kube, cluster.clock)
    needs = [
        RequiredRight("get", "/metrics"),
        RequiredRight("list", "gpuworkloadbudgets", "headroom.dev", cluster.namespace),
    ]
    admin, nobody = [await reviews.who(cluster.token(user)) for user in ("admin", "nobody")]
    assert admin is not None
    assert nobody is not None
    assert (admin.name, nobody.name) == ("admin", "nobody")
    assert await reviews.allowed(admin, needs) == set(needs)
    assert await reviews.allowed(nobody, needs) == frozenset()
    assert await reviews.who(cluster.token("unknown")) is None


async def test_the_adapter_says_which_of_its_own_rights_are_missing(cluster: Cluster) -> None:
    needs = [RequiredRight("create", "pods/eviction"), RequiredRight("list", "powerpools", "headroom.dev")]
    assert await lacking(cluster.kube, needs) == []
    assert await lacking(cluster.client("nobody"), needs) == needs


async def test_every_answer_tells_the_servers_time(cluster: Cluster) -> None:
    client = cluster.client("nobody")
    assert client.server_time.now(client.clock.monotonic()) is None
    with refused(Forbidden, 403, "Forbidden"):
        await client.get(cluster.path("ConfigMap"))
    assert client.server_time.now(client.clock.monotonic()) is None, "only those who let us in are believed"
    await client.get("/version")
    told = client.server_time.now(client.clock.monotonic())
    assert told is not None
    assert abs(told - client.clock.now()) < 5000
