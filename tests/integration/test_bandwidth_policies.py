"""What the policies on bandwidth make of rates on a real API server: the same verdict and the same number as our own parser."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator

import msgspec
import pytest

from headroom.api.bandwidth_config import BandwidthConfigSpec, RateKey, Unit
from headroom.api.quantities import NANO, InvalidQuantity, nano
from headroom.core.bandwidth.rates import parse_rate
from headroom.model.bandwidth import mbps
from tests.api.cases import API_VERSION, manifest
from tests.api.verdicts import Server
from tests.control_plane import wait_until
from tests.integration.policed import Document
from tests.tiers import CI, DEEP

SEED = os.environ.get("HEADROOM_SEED") or ("headroom" if CI else str(random.SystemRandom().randrange(10**9)))
VALUES = 20_000 if DEEP else 800
CONFIGS = f"/apis/{API_VERSION}/bandwidthconfigs"
PODS = "/api/v1/namespaces/team-a/pods"
KEYS: dict[Unit, str] = {"bits": "example.com/rate", "Mbps": "example.com/rate-mbps"}
TRAPS = (
    *(
        "",
        " ",
        ".",
        "+",
        "-",
        "0",
        "-0",
        "1e309",
        "1e-309",
        "1e1000000000000",
        "1E5",
        "1e+6",
        "1e999",
        "NaN",
        "inf",
        "0x10",
        "1_000",
    ),
    *(
        "999",
        "999.5",
        "999.0000000001",
        "1000",
        "1k",
        "1P",
        "1.0P",
        "1000T",
        "1000.0000001T",
        "999999999999999.5",
        "1Pi",
        "1E",
        "1Ei",
    ),
    *(
        "1M",
        "1000001",
        "1000000.5",
        "999999.999999999",
        "1.0000000001M",
        "100Gi",
        "5.",
        ".5M",
        "+5M",
        "-5M",
        "1m",
        "1000m",
        "1e9n",
        "9" * 64,
    ),
    *(
        "9" * 65,
        "1" + "0" * 15,
        "0." + "0" * 61 + "1",
        "０",
        "１M",
        "1M\n",
        "\n1M",
        "1 M",
        "M",
        "1MM",
        "1e5k",
        "☃",
        "\u202e1M",
        "x" * 300,
    ),
    *("0.001", "0.0009999999999", "0.000999", "1000000000", "1000000000.000001", "1.5", "1,5", "1e2"),
)
"""What has misled a parser somewhere."""


class Fuzzer:
    """Texts that are rates, or look like some."""

    def __init__(self, seed: str) -> None:
        self.dice = random.Random(seed)

    def text(self) -> str:
        dice = self.dice
        if dice.random() < 0.1:
            return "".join(dice.choice("0123456789.eEkMGTPinum+- \n") for _ in range(dice.randrange(1, 12)))
        digits = str(dice.randrange(10 ** dice.randrange(1, 18)))
        if dice.random() < 0.4:
            digits += "." + str(dice.randrange(10 ** dice.randrange(1, 14)))
        suffix = dice.choice(
            ["", "", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "m", "u", "n", f"e{dice.randrange(-20, 20)}"]
        )
        return dice.choice(["", "", "", "+", "-", "0"]) + digits + suffix


@pytest.fixture
def configured(policed: dict[str, Server]) -> Iterator[Server]:
    """A server whose policies reserve native resources by annotations of this test alone."""
    admin = policed["admin"]
    spec = BandwidthConfigSpec(
        mode="Native",
        egress=(RateKey(annotation=KEYS["bits"]),),
        ingress=(RateKey(annotation=KEYS["Mbps"], unit="Mbps"),),
    )
    code, answer = admin.send(
        "POST", CONFIGS, json.dumps(manifest("BandwidthConfig", "headroom", msgspec.to_builtins(spec)))
    )
    assert code == 201, answer
    wait_until(
        lambda: reserved(admin, "bits", "1M") == 1 and reserved(admin, "bits", "x") is None, "the rules are known"
    )
    yield admin
    assert admin.send("DELETE", CONFIGS)[0] == 200


def reserved(server: Server, unit: Unit, text: str) -> int | None:
    """How many Mbps a new pod asks for; None if it is refused."""
    container = {"name": "c", "image": "none"}
    document: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [container]},
    }
    document["metadata"]["annotations"] = {KEYS[unit]: text}
    code, answer = server.send("POST", PODS + "?dryRun=All", json.dumps(document))
    if code == 403:
        assert f"metadata.annotations[{KEYS[unit]}] of pod team-a/p must be a rate from 1k to 1P" in answer["message"]
        return None
    assert code == 201, (text, answer)
    requests = answer["spec"]["containers"][0]["resources"].get("requests", {})
    way = "egress" if unit == "bits" else "ingress"
    found = nano(requests.pop(f"headroom.dev/{way}-mbps", "0"))
    assert requests == {}
    assert isinstance(found, int)
    return found // NANO


def expected(unit: Unit, text: str) -> int | None:
    bits = parse_rate(text, unit)
    return None if isinstance(bits, InvalidQuantity) else mbps(bits)


def test_the_policies_and_our_parser_read_every_rate_alike(
    configured: Server,
) -> None:
    fuzzer = Fuzzer(SEED)
    texts = [*TRAPS, *(fuzzer.text() for _ in range(VALUES))]
    cases: list[tuple[Unit, str]] = [
        (unit, text)
        for text in texts
        for unit in (("bits", "Mbps") if text in TRAPS else (fuzzer.dice.choice(["bits", "bits", "Mbps"]),))
    ]
    differing = [
        (unit, text, found, wanted)
        for unit, text in cases
        if (found := reserved(configured, unit, text)) != (wanted := expected(unit, text))
    ]
    assert differing == [], f"seed {SEED}"
    accepted = sum(expected(unit, text) is not None for unit, text in cases)
    assert min(accepted, len(cases) - accepted) > len(cases) // 5  # neither verdict is rare
