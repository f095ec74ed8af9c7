"""`headroom convert` takes over every sample of the five older systems, and loses nothing silently."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headroom.adapters.usable_by import Use
from headroom.api.kinds import problems
from tests.cli import samples
from tests.cli.conftest import Done, Headroom

ALLOW = "the operator calls only addresses that it is allowed to: give it --allow-egress http://power-api\n"


def converted(done: Done) -> list[Any]:
    return list(yaml.safe_load_all(done.out))


@pytest.mark.parametrize("kind", samples.ALL)
def test_each_sample_becomes_a_valid_resource_with_a_plan(headroom: Headroom, tmp_path: Path, kind: str) -> None:
    done = headroom("convert", "-", stdin=samples.ALL[kind].encode())
    assert done.code == 0
    if kind != "Spotpool":  # of which there is more to tell
        assert done.err == (ALLOW if kind == "PowerPool" else "")
    [ours] = [each for each in converted(done) if each["kind"] == kind]
    assert problems(ours) == []
    planned = headroom("plan", "-f", "-", "-o", "json", stdin=done.out.encode())
    assert planned.code == 0
    result = json.loads(planned.out)
    assert result["problems"] == []
    assert [each["resource"]["kind"] for each in result["decisions"]] == [kind]
    assert result["decisions"][0]["message"]


def test_plain_keys_move_into_a_secret(headroom: Headroom) -> None:
    secret, pool = converted(headroom("convert", "-", stdin=samples.SPOTPOOL.encode()))
    assert secret == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "spotpool-sample-credentials",
            "annotations": {
                "headroom.dev/usable-by": "Spotpool/default/spotpool-sample@https://cvm.tencentcloudapi.com"
            },
        },
        "type": "Opaque",
        "stringData": {"secretId": "<your-secret-id>", "secretKey": "<your-secret-key>"},
    }
    assert pool["spec"]["credentialsSecretRef"] == {"name": "spotpool-sample-credentials"}
    assert (
        "secret" not in str({**pool["spec"], "credentialsSecretRef": None}).replace("credentialsSecretRef", "").lower()
    )


def test_keys_also_leave_a_pool_that_is_ours_already_and_what_kubectl_remembers(headroom: Headroom) -> None:
    remembered = """\
  namespace: lab
  uid: 0b3c
  resourceVersion: "7"
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"secretKey":"<your-secret-key>"}}'
    note: kept
"""
    text = samples.SPOTPOOL.replace("spec:\n", f"{remembered}spec:\n", 1)
    secret, pool = converted(headroom("convert", "-", stdin=text.encode()))
    assert pool["metadata"] == {"name": "spotpool-sample", "namespace": "lab", "annotations": {"note": "kept"}}
    assert secret["metadata"]["namespace"] == "lab"
    ours = samples.SPOTPOOL.replace("devops.jokerbai.com/v1", "headroom.dev/v1alpha1")
    assert [each["kind"] for each in converted(headroom("convert", "-", stdin=ours.encode()))] == ["Secret", "Spotpool"]


def test_a_spot_pool_stays_what_it_was_and_its_reader_is_told_what_changes(headroom: Headroom) -> None:
    old = samples.SPOTPOOL.replace("  minimum: 2", "  kongGatewayIP: 10.0.3.4\n  minimum: 2")
    old = old.replace("subnetId: DEFAULT", 'subnetId: ""')
    done = headroom("convert", "-", stdin=old.encode())
    secret, pool = converted(done)
    assert pool["spec"]["gateway"] == {
        "adminUrl": "http://10.0.3.4:8001",
        "upstream": "llama2-upstream",
        "port": 8080,
        "path": "/api/chat",
        "route": "/ollama-chat",
    }
    assert (pool["spec"]["publicIp"], pool["spec"]["join"], pool["spec"]["minimum"]) == (True, False, 2)
    assert "subnetId" not in pool["spec"]
    assert done.code == 0
    for said in (
        "they are neither counted nor ended, so end them yourself",
        "name SSH keys of the cloud in spec.keyIds",
        "give it --allow-egress http://10.0.3.4:8001",
        "names the pool in namespace default; change it if you apply the pool elsewhere",
        "kubectl create role headroom-secrets -n default --verb=get --resource=secrets",
    ):
        assert said in done.err
    # The Secret says what the adapter asks for.
    use = Use(
        kind="Spotpool",
        namespace="default",
        name="spotpool-sample",
        url="https://cvm.tencentcloudapi.com/",
        field="spec.credentialsSecretRef",
    )
    assert secret["metadata"]["annotations"]["headroom.dev/usable-by"] == str(use)


def test_keys_of_an_aws_pool_are_named_as_aws_names_them(headroom: Headroom) -> None:
    ours = samples.SPOTPOOL.replace("devops.jokerbai.com/v1", "headroom.dev/v1alpha1")
    ours = ours.replace("  region: ap-singapore\n", "  provider: aws\n  region: us-east-1\n")
    secret, _ = converted(headroom("convert", "-", stdin=ours.encode()))
    assert set(secret["stringData"]) == {"accessKeyId", "secretAccessKey"}
    assert secret["metadata"]["annotations"]["headroom.dev/usable-by"].endswith("@https://ec2.us-east-1.amazonaws.com")


MACHINES = [
    {
        "name": f"gpu-worker-{number}",
        "gpuCount": count,
        "scaleUpEndpoint": f"http://power-api/gpu-worker-{number}/start",
        "scaleDownEndpoint": f"http://power-api/gpu-worker-{number}/stop",
    }
    for number, count in ((1, 4), (2, 8))
]


def as_deployment(environment: str) -> str:
    pairs = [line.split("=", 1) for line in environment.splitlines() if "=" in line and not line.startswith("#")]
    container = {"name": "main", "env": [{"name": name, "value": value} for name, value in pairs]}
    spec = {"template": {"spec": {"containers": [container]}}}
    return json.dumps(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "gpu-node-manager"}, "spec": spec}
    )


def as_mapping(environment: str) -> str:
    return "\n".join(line.replace("=", ": ", 1) for line in environment.splitlines() if "=" in line)


def as_config_map(environment: str) -> str:
    data = yaml.safe_load(as_mapping(environment)) | {"OTHER": "x"}
    texts = {name: str(value) for name, value in data.items()}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nodes"}, "data": texts})


def as_compose(environment: str, *, listed: bool) -> str:
    data = yaml.safe_load(as_mapping(environment))
    given = [f"{name}={value}" for name, value in data.items()] if listed else data
    return json.dumps({"services": {"manager": {"image": "x", "environment": given}, "other": None}})


def as_docker(environment: str) -> str:
    data = yaml.safe_load(as_mapping(environment))
    forms = ("-e {}={}", "-e '{}={}'", '--env="{}={}"', "-e{}='{}'", '--env {}="{}"')
    words = [forms[number % len(forms)].format(*pair) for number, pair in enumerate(data.items())]
    return " \\\n  ".join(["docker run -d --name manager", *words, "image:latest"])


@pytest.mark.parametrize(
    "text",
    [
        samples.ENVIRONMENT,
        samples.ENVIRONMENT.replace("GPU_NODE", "export GPU_NODE"),
        samples.ENVIRONMENT.replace("=gpu", '="gpu').replace("-1\n", '-1"\n').replace("-2\n", '-2"\n'),
        samples.VALUES,
        as_mapping(samples.ENVIRONMENT),
        as_deployment(samples.ENVIRONMENT),
        as_config_map(samples.ENVIRONMENT),
        as_compose(samples.ENVIRONMENT, listed=True),
        as_compose(samples.ENVIRONMENT, listed=False),
        as_docker(samples.ENVIRONMENT),
    ],
    ids=["env", "export", "quoted", "values", "mapping", "deployment", "configmap", "compose", "compose-map", "docker"],
)
def test_every_form_of_machines_becomes_the_same_pool(headroom: Headroom, text: str) -> None:
    done = headroom("convert", "-", stdin=text.encode())
    assert done.code == 0
    [pool] = converted(done)
    assert pool["kind"] == "PowerPool"
    assert pool["spec"] == {"machines": MACHINES}
    assert problems(pool) == []
    assert done.err.endswith(ALLOW)


def test_a_docker_line_is_understood(headroom: Headroom) -> None:
    [pool] = converted(headroom("convert", "-", stdin=samples.DOCKER.encode()))
    assert [each["scaleUpEndpoint"] for each in pool["spec"]["machines"]] == ["http://power-api/start"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("GPU_NODE_2_NAME=gpu-worker-2", "GPU_NODE_2_*: GPU_NODE_2_NAME missing"),
        ("GPU_NODE_2_GPU_COUNT=8", "GPU_NODE_2_*: GPU_NODE_2_GPU_COUNT missing"),
        ("GPU_NODE_2_SCALE_UP_ENDPOINT=http://power-api/gpu-worker-2/start", "GPU_NODE_2_SCALE_UP_ENDPOINT missing"),
    ],
)
def test_an_incomplete_machine_is_left_out_and_named(headroom: Headroom, line: str, says: str) -> None:
    done = headroom("convert", "-", stdin=samples.ENVIRONMENT.replace(line, "").encode())
    assert done.code == 1
    assert says in done.err
    assert [each["name"] for each in converted(done)[0]["spec"]["machines"]] == ["gpu-worker-1"]


@pytest.mark.parametrize("value", ["many", "0", "-3", "4.5", "9" * 400])
def test_a_machine_without_a_usable_count_is_left_out_and_named(headroom: Headroom, value: str) -> None:
    text = samples.ENVIRONMENT.replace("GPU_NODE_2_GPU_COUNT=8", f"GPU_NODE_2_GPU_COUNT={value}")
    done = headroom("convert", "-", stdin=text.encode())
    assert "GPU_NODE_2_GPU_COUNT must be" in done.err
    assert len(converted(done)[0]["spec"]["machines"]) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("=gpu-worker-2", "=gpu-worker-1"),
            "GPU_NODE_2_*: duplicate machine gpu-worker-1, left out",
        ),
        (("2/stop", "2/start"), "GPU_NODE_2_SCALE_DOWN_ENDPOINT must differ from scaleUpEndpoint"),
        (
            ("http://power-api/gpu-worker-2/stop", "power-api/stop"),
            "GPU_NODE_2_SCALE_DOWN_ENDPOINT must be an http or https",
        ),
        (
            ("http://power-api/gpu-worker-2", "http://ada:pw@power-api"),
            "GPU_NODE_2_SCALE_UP_ENDPOINT must be an http or",
        ),
        (("=gpu-worker-2", "=GPU_2"), "GPU_NODE_2_NAME must be a node name"),
    ],
)
def test_a_machine_that_no_pool_could_have_is_left_out_and_named(
    headroom: Headroom, change: tuple[str, str], says: str
) -> None:
    done = headroom("convert", "-", stdin=samples.ENVIRONMENT.replace(*change).encode())
    assert done.code == 1, "a machine is not there"
    assert says in done.err
    assert "pw" not in done.err
    assert [each["name"] for each in converted(done)[0]["spec"]["machines"]] == ["gpu-worker-1"]


def test_what_may_be_called_is_listed_once_for_each_place(headroom: Headroom) -> None:
    text = samples.ENVIRONMENT.replace("http://power-api/gpu-worker-2/stop", "https://[fd00::7]:8443/stop")
    done = headroom("convert", "-", stdin=text.encode())
    assert done.err.endswith("--allow-egress http://power-api,https://[fd00::7]:8443\n")


def test_what_is_ours_already_passes_unchanged_and_what_is_unknown_with_a_word(headroom: Headroom) -> None:
    ours = samples.BUDGET.replace("budget.zxuhan.dev", "headroom.dev")
    text = f"{ours}---\n{samples.NODE_CLASS}"
    done = headroom("convert", "-", stdin=text.encode())
    assert converted(done) == list(yaml.safe_load_all(text))
    assert done.err.splitlines() == [
        "standard input: EC2NodeClass/karpenter-quick-test is not of a converted kind; it is copied unchanged"
    ]


def test_annotations_of_a_paused_pod_are_renamed(headroom: Headroom) -> None:
    pod = """\
apiVersion: v1
kind: Pod
metadata:
  name: train-0
  annotations: {budget.zxuhan.dev/paused-at: 2026-04-20T10:00:00Z, budget.zxuhan.dev/paused-by: lab/team-a, x: "1"}
"""
    [moved] = converted(headroom("convert", "-", stdin=pod.encode()))
    assert moved["metadata"]["annotations"] == {
        "headroom.dev/paused-at": "2026-04-20T10:00:00Z",
        "headroom.dev/paused-by": "lab/team-a",
        "x": "1",
    }


def test_reservations_are_requests_now(headroom: Headroom) -> None:
    entry = "[{podUid: u1, podName: a, bandwidth: {ulMbps: 5}}]"
    text = samples.BANDWIDTH.replace("reservations: []", f"reservations: {entry}").replace(
        "spec:\n", "spec:\n  node: Node-Name\n"
    )
    done = headroom("convert", "-", stdin=text.encode())
    [bandwidth] = converted(done)
    assert bandwidth["spec"]["requests"] == [{"podUid": "u1", "podName": "a", "bandwidth": {"ulMbps": 5}}]
    assert bandwidth["spec"]["node"] == "node-name"
    assert "reservations" not in bandwidth["spec"]
    assert problems(bandwidth) == []


def test_zeros_that_meant_the_default_are_dropped(headroom: Headroom) -> None:
    text = samples.LEFTOVER.replace(
        "minGPUs: 4", "minGPUs: 0\n  maxZones: 0\n  capacityType: ''\n  labels: {}"
    ).replace("  capacityType: spot               # default\n", "")
    done = headroom("convert", "-", stdin=text.encode())
    assert done.code == 0
    assert not {"minGPUs", "maxZones", "capacityType"} & set(converted(done)[0]["spec"])


def test_what_stays_wrong_is_said(headroom: Headroom) -> None:
    done = headroom("convert", "-", stdin=samples.SPOTPOOL.replace("minimum: 2", "minimum: 3").encode())
    assert done.code == 1
    assert "Spotpool/spotpool-sample: spec.maximum must be at least minimum" in done.err
    assert len(converted(done)) == 2


@pytest.mark.parametrize("text", ["", "A=1\n", "x: 1\n"])
def test_nothing_to_convert_is_said(headroom: Headroom, text: str) -> None:
    done = headroom("convert", "-", stdin=text.encode())
    assert (done.code, done.out) == (1, "")
    assert "nothing to convert was found" in done.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("aws: {secretName: aws-credentials}\n", "these are settings of the old controller without"),
        (
            'apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    x/rate: "1"\n    x/rate: "2"\n',
            "line 7: x/rate is on line 6 already; only the last one counts",
        ),
    ],
)
def test_what_comes_to_nothing_is_told(headroom: Headroom, text: str, says: str) -> None:
    assert says in headroom("convert", "-", stdin=text.encode()).err


CHART = """\
manager:
  replicas: 1
  bandwidth:
    network: {uplink: 10000}
    local: {uplink: 0, downlink: "2500"}
  annotations: {egress: kubernetes.io/egress-bandwidth, ingress: ovn.kubernetes.io/ingress_rate}
"""


def test_chart_values_of_bandwidth_become_settings(headroom: Headroom) -> None:
    done = headroom("convert", "-", stdin=CHART.encode())
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        (
            "standard input: kubernetes.io/egress-bandwidth: a plain number was Mbps in the older system; it is bits per "
            "second here and for the CNI, so write 100M and not 100"
        ),
        "manager.bandwidth and manager.annotations are settings of the operator now; give it this environment:",
        "HEADROOM_BANDWIDTH_LOCAL=20G/2500M",
        "HEADROOM_BANDWIDTH_NETWORK=10G/1G",
        "HEADROOM_BANDWIDTH_EGRESS_ANNOTATIONS=kubernetes.io/egress-bandwidth",
        "HEADROOM_BANDWIDTH_INGRESS_ANNOTATIONS=ovn.kubernetes.io/ingress_rate=Mbps",
    ]


def test_settings_and_machines_in_one_file_are_both_taken_over(headroom: Headroom) -> None:
    done = headroom("convert", "-", stdin=(samples.VALUES + CHART).encode())
    assert [each["kind"] for each in converted(done)] == ["PowerPool"]
    assert "HEADROOM_BANDWIDTH_NETWORK=10G/1G" in done.err
    assert done.code == 0


@pytest.mark.parametrize("value", ["-5", "many", "1.5", "9" * 30, "true"])
def test_a_capacity_that_is_no_number_is_named_and_left_out(headroom: Headroom, value: str) -> None:
    text = CHART.replace("uplink: 10000", f"uplink: {value}")
    done = headroom("convert", "-", stdin=text.encode())
    assert done.code == 1
    assert "manager.bandwidth.network.uplink must be whole Mbps" in done.err
    assert "HEADROOM_BANDWIDTH_NETWORK" not in done.err


def test_json_is_one_list(headroom: Headroom) -> None:
    made = json.loads(headroom("convert", "-", "-o", "json", stdin=samples.SPOTPOOL.encode()).out)
    assert (made["kind"], [each["kind"] for each in made["items"]]) == ("List", ["Secret", "Spotpool"])


def test_prose_is_told_what_can_be_converted(headroom: Headroom) -> None:
    done = headroom("convert", "-", stdin=b"Dear reader, this is no manifest.\n")
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("give manifests as YAML or JSON, chart values, an .env file, or a `docker run` line\n")
