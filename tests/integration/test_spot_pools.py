"""Spot pools from end to end: a real API server, scheduler and operator with just its rights, and a cloud that checks real signatures.

The tests share one operator and go on from one another: what a pool of an earlier one has must stand in all later ones.
"""

import json
import re
import socket
from collections.abc import Iterator

import pytest

from headroom.api.marks import POOL_FINALIZER
from tests.control_plane import KubectlFailed
from tests.integration.accounts import Document, fetched
from tests.integration.clouded import CANARIES, DATA, KEY, POOLS, WRONG, Clouds, Lab, clouds_of
from tests.integration.enforced import enforced_cluster, wait_for
from tests.integration.fenced import Fenced
from tests.integration.powered import FORBIDDEN, Pool, site_of
from tests.integration.test_rights import OF_OTHERS, assert_allowed, assert_fenced

TENANT = "tenant"


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    folder = tmp_path_factory.mktemp("clouded")
    with (
        enforced_cluster(folder) as cluster,
        site_of(cluster, folder) as site,
        clouds_of(site, tmp_path_factory.mktemp("operators")) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def lab(clouds: Clouds) -> Lab:
    """A namespace with a pool whose machine never gets further than PENDING, so that the account is listed every ten seconds."""
    made = clouds.namespace("lab")
    made.create("always", minimum=1, maximum=1, joinTimeoutSeconds=86400)
    return made


# --- a pool's life ----------------------------------------------------------------------------------------------------------------


def test_a_pool_is_filled_and_a_machine_that_is_taken_back_is_replaced(clouds: Clouds, lab: Lab) -> None:
    clouds.cloud.faults.next("launch", "throttled")  # the error repeats all that was sent, user data too
    lab.create("kept", minimum=2, maximum=2)
    lab.wait_until_running("kept", 2)
    for number, machine in enumerate(sorted(lab.machines("kept"), key=lambda each: each.tags["headroom.dev/slot"])):
        assert machine.tags["headroom.dev/cluster"] == clouds.cluster
        assert machine.tags["headroom.dev/slot"] == str(number)
        assert DATA in machine.user_data
    assert lab.pool("kept")["metadata"]["finalizers"] == [POOL_FINALIZER]
    nodes = lab.join("kept")
    wait_for(lambda: {each.get("node") for each in lab.slots("kept")} == {*nodes}, "the pool knows its nodes")
    wait_for(lambda: all(each.get("joinedAt") for each in lab.slots("kept")), "they are ready")
    first, second = lab.machines("kept")
    first.state = "SHUTDOWN"
    wait_for(lambda: len(ids := lab.known("kept")) == 2 and first.name not in ids, "it is replaced")
    assert len(lab.ids("kept")) == 2
    assert second.name in lab.ids("kept")
    assert len(set(lab.tokens("kept"))) == 3
    lab.join("kept")


def test_a_gateway_sends_requests_to_the_machines_there_are(clouds: Clouds, lab: Lab) -> None:
    lab.create("served", minimum=2, maximum=2, join=False)
    lab.wait_until_running("served", 2)
    for machine in lab.machines("served"):
        machine.state = "RUNNING"
    wait_for(lambda: all(each.get("joinedAt") for each in lab.slots("served")), "they are known to run")
    numbers = (int(each.name.removeprefix("ins-"), 16) for each in lab.machines("served"))
    mine, missing = (f"10.0.{number // 250}.{number % 250}:8080" for number in numbers)
    mark = f"headroom-{lab.uid('served')}"
    clouds.kong.put("chat", mine, "10.9.9.9:8080", tags=[mark])
    clouds.kong.put("chat", "10.8.8.8:8080", tags=["theirs"])
    token = {"name": "kong", "key": "token"}
    gateway = {"adminUrl": clouds.kong.url, "upstream": "chat", "tokenSecretRef": token}
    lab.edit("served", gateway=gateway)
    wait_for(lambda: clouds.kong.all("chat") == {mine, missing, "10.8.8.8:8080"}, "the targets are the machines")
    assert sorted(each.split()[0] for each in clouds.kong.changes) == ["DELETE", "POST"]


# --- crashes ----------------------------------------------------------------------------------------------------------------------


def test_a_lost_reply_buys_no_second_machine(clouds: Clouds, lab: Lab) -> None:
    clouds.cloud.faults.next("launch", "cut")
    lab.create("lost", minimum=1, maximum=3)
    lab.wait_until_running("lost", 1)
    assert len(lab.tokens("lost")) > 1
    assert len(set(lab.tokens("lost"))) == 1


def test_killed_after_the_intent_and_before_the_call_the_operator_buys_one(clouds: Clouds, lab: Lab) -> None:
    clouds.cloud.faults.next("launch", "hang")
    before = clouds.cloud.log.count("RunInstances")
    lab.edit("lost", desired=2)
    wait_for(lambda: clouds.cloud.log.count("RunInstances") > before, "the cloud is called")
    clouds.operator.kill()
    [intent] = [each for each in lab.slots("lost") if each["state"] == "Launching"]
    assert len(lab.ids("lost")) == 1
    clouds.operator.start()
    lab.wait_until_running("lost", 2)
    assert lab.tokens("lost")[-1] == intent["token"]
    assert len(set(lab.tokens("lost"))) == 2


def test_killed_after_the_call_and_before_its_answer_the_operator_takes_the_machine_up(
    clouds: Clouds, lab: Lab
) -> None:
    clouds.cloud.keeps_answers = True
    lab.edit("lost", desired=3)
    wait_for(lambda: len(lab.ids("lost")) == 3, "the cloud has launched it")
    clouds.operator.kill()
    assert [each["state"] for each in lab.slots("lost")].count("Launching") == 1
    clouds.cloud.keeps_answers = False
    clouds.operator.start()
    lab.wait_until_running("lost", 3)
    assert len(set(lab.tokens("lost"))) == 3


def test_deleting_a_pool_ends_its_machines_and_only_those_though_the_operator_is_killed(
    clouds: Clouds, lab: Lab
) -> None:
    nodes = lab.join("lost")
    wait_for(lambda: all(each.get("joinedAt") for each in lab.slots("lost")), "its machines are nodes")
    mine, others = lab.ids("lost"), lab.ids("kept") | lab.ids("served") | lab.ids("always")
    before = list(clouds.cloud.ended)
    lab.delete("lost")
    wait_for(lambda: lab.are("lost", "Draining", 3), "they are drained")
    clouds.operator.kill()
    assert lab.ids("lost") == mine
    clouds.operator.start()
    wait_for(lambda: not lab.slots("lost"), "its machines have ended")
    assert {each.state for each in clouds.cloud.machines.values() if each.name in mine} == {"TERMINATING"}
    wait_for(lambda: "3 nodes are still ready" in lab.says("lost")[2], "it waits for its nodes")
    assert all(clouds.site.cordons(node)[-1][1] for node in nodes), "no pod starts on a machine that is ending"
    lab.leave(nodes)
    wait_for(lambda: not lab.pool("lost"), "the pool is gone")
    assert {*clouds.cloud.ended} - {*before} == mine
    assert lab.ids("kept") | lab.ids("served") | lab.ids("always") == others


def test_a_pool_that_retains_its_machines_goes_and_they_stay(clouds: Clouds, lab: Lab) -> None:
    lab.create("leaving", minimum=1, maximum=1, deletionPolicy="Retain")
    lab.wait_until_running("leaving", 1)
    [machine] = lab.machines("leaving")
    machine.state = "RUNNING"
    lab.delete("leaving")
    wait_for(lambda: not lab.pool("leaving"), "the pool is gone")
    assert machine.state == "RUNNING"
    assert machine.name not in clouds.cloud.ended


def test_keys_of_another_account_buy_and_end_nothing(clouds: Clouds) -> None:
    lab = clouds.namespace("moving")
    lab.create("one", minimum=1, maximum=2)
    lab.wait_until_running("one", 1)
    assert lab.pool("one")["status"]["account"] == clouds.cloud.account
    mine, before = lab.ids("one"), len(clouds.cloud.tokens)
    lab.rekey(secretId="another-id")
    wait_for(lambda: lab.says("one")[1] == "OtherAccount", "the pool says whose keys it has")
    assert clouds.another.account in lab.says("one")[2]
    lab.edit("one", minimum=2)
    lab.delete("one")
    wait_for(lambda: "eing deleted" in lab.says("one")[2], "it knows that it is being deleted")
    assert (lab.ids("one"), len(clouds.cloud.tokens), clouds.another.machines) == (mine, before, {})
    lab.rekey(secretId="our-id")
    wait_for(lambda: not lab.pool("one"), "with its own keys its machine ends, and it goes")
    assert mine <= {*clouds.cloud.ended}


# --- demand -----------------------------------------------------------------------------------------------------------------------


def both(clouds: Clouds, name: str, power: int, spot: int) -> tuple[Pool, Lab]:
    """A machine that sleeps and one that could be bought, and a pod that either could take."""
    pool = clouds.site.pool(name, 4)
    pool.create(order=power)
    lab = clouds.namespace(name)
    lab.create("spot", desired="Demand", order=spot, template={"gpuCount": 4, "labels": {"pool": name}})
    wait_for(lambda: lab.says("spot")[0] == "True", "the pool may be bought for")
    wait_for(lambda: pool.state(f"{name}-1") == "Off", "the other one may be woken")
    toleration = {"key": "headroom.dev/spotpool", "value": name, "effect": "NoSchedule"}
    pool.work("train", 4, {"tolerations": [toleration]})
    return pool, lab


def test_a_pending_pod_buys_a_machine_and_wakes_none(clouds: Clouds) -> None:
    pool, lab = both(clouds, "buys", power=100, spot=1)
    lab.wait_until_running("spot", 1)
    [node] = lab.join("spot", gpus=4)
    wait_for(lambda: pool.runs("train"), "the pod runs")
    assert pool.pods()[0]["spec"]["nodeName"] == node
    assert len(set(lab.tokens("spot"))) == 1
    assert pool.commands() == []
    [machine] = lab.ids("spot")
    lab.delete("spot")
    wait_for(lambda: machine in clouds.cloud.ended, "its machine ends")
    lab.leave([node])
    wait_for(lambda: not lab.pool("spot"), "the pool is gone")
    assert clouds.cloud.ended[-1] == machine
    assert clouds.site.cordons(node)[0][1], "pods were kept off before it was emptied"
    assert pool.evicted() == ["train"]


def test_a_pending_pod_wakes_a_machine_and_buys_none(clouds: Clouds) -> None:
    pool, lab = both(clouds, "wakes", power=1, spot=100)
    wait_for(lambda: pool.runs("train"), "the pod runs")
    assert pool.pods()[0]["spec"]["nodeName"] == "wakes-1"
    assert pool.commands() == [("wakes-1", "start")]
    assert lab.tokens("spot") == []


# --- tenants ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tenancy(clouds: Clouds) -> Lab:
    """A namespace whose tenant may write Spotpools and nothing else."""
    clouds.api.send("POST", "api/v1/namespaces", {"metadata": {"name": "tenancy"}})
    only = ("--verb=get,list,create,update,patch,delete", "--resource=spotpools.headroom.dev", "-n", "tenancy")
    clouds.plane.kubectl("create", "role", "spotpools", *only)
    clouds.plane.kubectl("create", "rolebinding", "spotpools", "-n", "tenancy", "--role=spotpools", f"--user={TENANT}")
    return Lab(clouds, "tenancy")


def write(lab: Lab, document: Document) -> None:
    """As the tenant."""
    lab.clouds.plane.kubectl("create", "-f", "-", input=json.dumps(document), user=TENANT)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"region": "evil.example.com/x"}, "spec.region"),
        ({"credentialsSecretRef": {"name": "lab/keys"}}, "spec.credentialsSecretRef.name"),
        ({"secretId": "our-id", "secretKey": WRONG}, "keys do not belong in a resource"),
        ({"minimum": 4, "maximum": 3}, "must be at least minimum"),
        ({"provider": "webhook"}, "must be set for provider webhook"),
    ],
)
def test_a_tenants_pool_is_refused(tenancy: Lab, spec: Document, says: str) -> None:
    with pytest.raises(KubectlFailed, match=says):
        write(tenancy, tenancy.document("refused", **spec))


def test_a_tenant_uses_no_secret_that_does_not_name_the_pool_and_no_host_that_is_not_allowed(
    clouds: Clouds, tenancy: Lab
) -> None:
    tenancy.secret("unlent", secretId="unlent-id", secretKey=KEY)
    tenancy.secret("mistaken", f"Spotpool/tenancy/mistaken@{clouds.cloud.url}", secretId="wrong-id", secretKey=WRONG)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.setblocking(False)
        url = f"http://127.0.0.1:{stranger.getsockname()[1]}/v1"
        plain: Document = {"credentialsSecretRef": None, "userDataSecretRef": None, "minimum": 1}
        told: dict[str, tuple[Document, str, str]] = {
            "elsewhere": ({"minimum": 1}, "Refused", "secrets tenancy/keys"),  # there is one in another namespace
            "unlent": ({"minimum": 1, "credentialsSecretRef": {"name": "unlent"}}, "Credentials", "does not allow"),
            "none": (plain, "Credentials", "--ambient-credentials"),
            "strange": (plain | {"provider": "webhook", "endpoint": url}, "Refused", "--allow-egress"),
            "mistaken": ({"minimum": 1, "credentialsSecretRef": {"name": "mistaken"}}, "Credentials", "Signature"),
        }
        for pool, (spec, _, _) in told.items():
            document = tenancy.document(pool, **spec)
            document["spec"] = {key: value for key, value in document["spec"].items() if value is not None}
            write(tenancy, document)
        for pool, (_, reason, words) in told.items():
            # mypy cannot tell the type of a lambda with a default.
            wait_for(lambda pool=pool: tenancy.says(pool)[1] not in ("", "NotListed"), f"{pool} says why")  # type: ignore[misc]
            assert tenancy.says(pool)[0] == "False"
            assert tenancy.says(pool)[1] == reason, tenancy.says(pool)
            assert words in tenancy.says(pool)[2], tenancy.says(pool)
            assert tenancy.slots(pool) == []
        with pytest.raises(BlockingIOError):
            stranger.accept()
    assert clouds.cloud.callers["unlent-id"] == 0
    assert clouds.cloud.callers["wrong-id"] > 0


# --- the operator's own rights ----------------------------------------------------------------------------------------------------

KEPT = ("example.com/keep", "headroom.dev/usage")


def test_the_operator_may_change_nothing_of_a_spotpool_but_its_finalizer(clouds: Clouds, tenancy: Lab) -> None:
    document = tenancy.document("theirs")
    document["metadata"] |= {"labels": {"team": "a"}, "annotations": {"theirs": "1"}, "finalizers": [*KEPT]}
    clouds.api.send("POST", tenancy.path(), document)
    path, ours = tenancy.path("theirs"), {"metadata": {"finalizers": [*KEPT, POOL_FINALIZER]}}
    fenced = Fenced(clouds.plane)
    changes = [*OF_OTHERS, {"metadata": {"finalizers": None}}, {"metadata": {"finalizers": [POOL_FINALIZER]}}]
    changes += [{"spec": each} for each in ({"maximum": 2}, {"paused": True}, {"deletionPolicy": "Retain"})]
    for change in (*changes, ours | {"spec": {"paused": True}}):
        assert_fenced(fenced, path, change)
    assert_allowed(fenced, path, ours)
    assert_allowed(fenced, path, {"metadata": {"finalizers": [*KEPT]}})
    assert fenced.operator.send("POST", f"{tenancy.path()}?dryRun=All", tenancy.document("new"))[0] == 403
    fenced.close()
    clouds.api.send("PATCH", path, {"metadata": {"finalizers": None}}, "merge")
    tenancy.delete("theirs")


# --- a backup ---------------------------------------------------------------------------------------------------------------------


def orphans_of(clouds: Clouds) -> set[str]:
    """The machines of which some pool says that they have no owner."""
    every = (it for each in clouds.api.items(POOLS) for it in each.get("status", {}).get("orphans", ()))
    return {each["instanceId"] for each in every}


def test_pools_restored_with_new_uids_end_nothing_and_report_what_has_no_owner(clouds: Clouds, lab: Lab) -> None:
    before = clouds.api.items(POOLS)
    ended, uids = list(clouds.cloud.ended), {each["metadata"]["uid"] for each in before}
    old = {each.name for uid in uids for each in clouds.cloud.alive(uid)}
    for each in before:
        path = f"{POOLS.removesuffix('spotpools')}namespaces/{each['metadata']['namespace']}/spotpools"
        name = each["metadata"]["name"]
        clouds.api.send("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, "merge")
        clouds.api.send("DELETE", f"{path}/{name}")
        kept = {"name": name, "finalizers": each["metadata"].get("finalizers", [])}
        made = clouds.api.send("POST", path, each | {"metadata": kept})
        if name == "kept":  # some tools restore the status too
            clouds.api.send("PUT", f"{path}/{name}/status", made | {"status": each["status"]})
    assert not uids & {each["metadata"]["uid"] for each in clouds.api.items(POOLS)}
    assert clouds.ownerless() >= old | {clouds.tagged.name}
    wait_for(lambda: orphans_of(clouds) == clouds.ownerless(), "what has no owner is reported")
    wait_for(lambda: lab.are("always", "Running", 1), "the pools go on")
    assert lab.slots("kept")
    lab.delete("kept")
    wait_for(lambda: not lab.pool("kept"), "a pool whose status names machines of others does not wait for them")
    assert clouds.cloud.ended == ended
    assert all(clouds.cloud.machines[each].state in ("PENDING", "RUNNING") for each in old)


# --- all in all -------------------------------------------------------------------------------------------------------------------


def test_no_secret_is_seen_anywhere(clouds: Clouds, lab: Lab) -> None:
    listable = clouds.plane.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    kinds = ",".join(sorted({*listable} - {"secrets"}))
    everywhere = {"the API server": clouds.plane.kubectl("get", kinds, "-A", "-o", "json", "--show-managed-fields")}
    everywhere["the log"] = clouds.operator.log
    pages = (
        "api/spot",
        "api/spot/lab/served",
        "api/spot/tenancy/mistaken",
        "api/overview",
        "api/decisions",
        "api/power",
    )
    for page in ("metrics", *pages):
        everywhere[page] = fetched(f"http://{clouds.operator.address}/{page}")
    assert all(everywhere.values()), [where for where, seen in everywhere.items() if not seen]
    assert "served" in everywhere["api/spot"]
    assert "headroom_spot_launches_total" in everywhere["metrics"]
    assert [(where, each) for where, seen in everywhere.items() for each in CANARIES if each in seen] == []


def test_in_all_this_nobody_was_harmed_and_nothing_forbidden_was_asked(clouds: Clouds) -> None:
    assert clouds.cloud.harm == []
    assert {each.state for each in (*clouds.foreign, clouds.tagged)} == {"RUNNING"}
    forbidden = [line for line in clouds.plane.metrics().splitlines() if FORBIDDEN.match(line)]
    # Secrets that nobody lent it, and what the test of its rights tried.
    assert [line for line in forbidden if not re.search('resource="(secrets|spotpools)"', line)] == []
    assert "orbidden" not in "".join(line for line in clouds.operator.log.splitlines() if "secrets" not in line)
    assert sorted(each.split()[0] for each in clouds.kong.changes) == ["DELETE", "POST"]
