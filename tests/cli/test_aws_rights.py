"""The IAM policies of the pages allow the calls that Headroom makes, and no others; the join script makes the node that a pool promises."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from headroom.adapters import documents
from headroom.core.spot_pools.gathering import pools_of
from headroom.core.spot_pools.rooms import promised
from tests.cli.stage import NOON_MS, ROOT

CLOUDS = ROOT / "src" / "headroom" / "adapters" / "clouds"
NO_RIGHT_NEEDED = {"sts:GetCallerIdentity"}
IMPLIED = {"ec2:RunInstances": {"ec2:CreateTags"}, "sqs:DeleteMessageBatch": {"sqs:DeleteMessage"}}
"""What AWS asks for where a call is not named like its right: tags at the launch, and messages in batches."""


def statements(page: str) -> list[dict[str, Any]]:
    (text,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    found: list[dict[str, Any]] = json.loads(text)["Statement"]
    return found


def several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def allowed(page: str) -> set[str]:
    return {action for each in statements(page) for action in several(each["Action"])}


def rights(calls: set[str]) -> set[str]:
    """What the calls need."""
    found = {f"{service}:{''.join(map(str.title, name.split('_')))}" for service, name in (c.split(".") for c in calls)}
    for call, more in IMPLIED.items():
        if call in found:
            found = found - ({call} if call.endswith("Batch") else set()) | more
    return found - NO_RIGHT_NEEDED


def test_a_spotpool_may_do_what_it_calls_and_nothing_else() -> None:
    text = (CLOUDS / "aws.py").read_text()
    calls = {f"{service}.{name}" for service, name in re.findall(r"await \(?(ec2|sqs|sts)\.([a-z_]+)\(", text)}
    calls |= {f"ec2.{name}" for name in re.findall(r'get_paginator\("([a-z_]+)"\)', text)}
    assert allowed("spot-pools.md") == rights(calls)


def test_a_leftover_node_pool_may_read_what_it_reads_and_nothing_else() -> None:
    names = set(re.findall(r'_rows\(\s*"([a-z_]+)"', (CLOUDS / "aws_market.py").read_text()))
    calls = {f"{'pricing' if name == 'get_products' else 'ec2'}.{name}" for name in names}
    assert allowed("cheapest-capacity.md") == rights(calls)


def test_no_machine_is_launched_tagged_or_ended_without_our_tag() -> None:
    for each in statements("spot-pools.md"):
        if any("instance/*" in resource for resource in several(each["Resource"])):
            [(test, pairs)] = each["Condition"].items()
            assert test == "StringEquals"
            assert "CLUSTER" in [value for key, value in pairs.items() if key.endswith("Tag/headroom.dev/cluster")]


METADATA = {
    "api/token": "session",
    "meta-data/placement/availability-zone": "us-east-1a",
    "meta-data/placement/region": "us-east-1",
    "meta-data/instance-type": "g6.2xlarge",
    "meta-data/instance-life-cycle": "spot",
    "meta-data/instance-id": "i-0abc",
}
CURL = """#!/bin/sh
for word; do address=$word; done
case "$address" in
%s
*) exit 22 ;;
esac
"""


def test_the_join_script_registers_the_node_that_the_pool_promises(tmp_path: Path) -> None:
    manifest = (ROOT / "docs" / "examples" / "spotpool-demand.yaml").read_bytes()
    [(pool, _)] = pools_of(documents.read([("pool", manifest)]).world(NOON_MS))
    promise = promised(pool, "node", "g6.2xlarge", "us-east-1a")
    answers = "\n".join(f'*/latest/{path}) printf %s "{value}" ;;' for path, value in METADATA.items())
    for name, text in (("curl", CURL.replace("%s\n", f"{answers}\n", 1)), ("kubeadm", '#!/bin/sh\ncat "$3"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["sh", ROOT / "docs/examples/join.sh"], env=environment, capture_output=True, check=True, timeout=60
    )
    node = yaml.safe_load(done.stdout)["nodeRegistration"]
    given = {each["name"]: each["value"] for each in node["kubeletExtraArgs"]}
    labels = dict(each.split("=") for each in given["node-labels"].split(","))
    assert labels.items() <= dict(promise.labels).items()
    assert dict(promise.labels).keys() - labels.keys() == {
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "kubernetes.io/hostname",
    }
    assert [(each["key"], each["value"], each["effect"]) for each in node["taints"]] == [
        (each.key, each.value, each.effect) for each in promise.taints
    ]
    assert given["provider-id"].endswith("/i-0abc")
