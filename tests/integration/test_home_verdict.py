"""Two clusters, two operators, one PostgreSQL: a budget that spans them queues in both, by the verdict of its home cluster."""

import contextlib
from pathlib import Path

from headroom.api.marks import GATE
from tests.control_plane import ControlPlane, wait_until
from tests.integration.accounts import Account, Api, Operator, condition
from tests.integration.holds import GPU, gates
from tests.postgres import Postgres

NAMESPACE = "spanned"


def follows(account: Account) -> tuple[str, bool, bool]:
    found = account.status()["following"]
    return found["cluster"], found["holding"], found["stale"]


def test_new_pods_wait_in_both_clusters_until_home_has_room(
    prepared_plane: ControlPlane, second_prepared_plane: ControlPlane, postgres: Postgres, tmp_path: Path
) -> None:
    url, planes = postgres.new_database(), (prepared_plane, second_prepared_plane)
    with contextlib.ExitStack() as closing:
        apis = [closing.enter_context(contextlib.closing(Api(plane))) for plane in planes]
        here, there = (Account(api, NAMESPACE) for api in apis)
        operators = [
            Operator(plane, tmp_path, name, cluster_id=name, ledger_url=url)
            for name, plane in zip(("east", "west"), planes, strict=True)
        ]
        for operator in operators:
            closing.callback(operator.close)
        quota = {"gpuHours": "0.001", "windowHours": 24}
        for each in (here, there):
            each.budget(homeCluster="east", quota=quota, enforcement={"action": "Hold", "gracePeriodSeconds": 0})
        here.run("one", 8)
        for operator in operators:
            operator.start()
        for api in apis:
            api.close()  # the server closes a connection that nobody used for long; the next call makes a new one
        wait_until(lambda: condition(here.status(), "Holding")[0] == "True", "home holds")
        wait_until(lambda: condition(there.status(), "Holding")[0] == "True", "the other one does too")
        wait_until(lambda: follows(there) == ("east", True, False), "by the word of home")
        assert "following" not in here.status()

        container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "1"}}}
        late = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late", "labels": {"team": "a"}}}
        path = f"api/v1/namespaces/{NAMESPACE}/pods"
        assert gates(apis[1].send("POST", path, late | {"spec": {"containers": [container]}})) == [GATE]
        wait_until(lambda: there.status().get("held", {}).get("pods") == 1, "it is queued")

        for each in (here, there):
            each.change("team", quota={"gpuHours": "100", "windowHours": 24})
        wait_until(lambda: not gates(apis[1].send("GET", f"{path}/late")), "home has room, so it starts")
        wait_until(lambda: condition(there.status(), "Holding")[0] == "False", "nobody waits")
