"""Values for every field of a GPUWorkloadBudget, right and wrong ones."""

from typing import Any

from tests.api.cases import BOOL, LABELS, LEFT_OUT, MEGABYTE, NOT_TEXT, At, Cases, free_text, manifest, number, whole


def _selector() -> dict[str, Any]:
    """Made anew each time: a copy of a document would keep two places together that share one object."""
    return {
        "matchLabels": {"team": "a"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["x", "y"]}],
    }


BUDGET = manifest(
    "GPUWorkloadBudget",
    "team-a",
    {
        "paused": False,
        "selector": _selector(),
        "namespaceSelector": _selector(),
        "quota": {"gpuHours": "100", "usd": "99.50", "windowHours": 24},
        "enforcement": {
            # A null is as good as nothing, which action has to be beside steps; so its place is there all the same.
            "action": None,
            "steps": [{"at": "80%", "action": "AlertOnly"}, {"at": "100%", "action": "Hold"}],
            "gracePeriodSeconds": 60,
            "releaseHorizon": "90m",
            "recoverWithin": "2h30m",
            "order": "WorstOffender",
            "evictionsPerMinute": 5,
        },
        "gpuResourceName": "nvidia.com/gpu",
        "gpuResources": [{"name": "nvidia.com/gpu", "weight": 1}, {"name": "nvidia.com/mig-*", "weight": "0.5"}],
        "accounting": "Exact",
        "homeCluster": "fleet-eu",
    },
)


def _selector_fields(path: str) -> dict[str, Cases]:
    expressions = f"{path}.matchExpressions"
    return {
        f"{path}.matchLabels": LABELS,
        expressions: Cases(
            valid=([], None, [{"key": "a", "operator": "Exists"}] * 16),
            invalid=(
                [{"key": "a", "operator": "Exists"}] * 17,
                [{"operator": "Exists"}],
                [{"key": "a"}],
                [None],
                ["a in (b)"],
                {"key": "a", "operator": "Exists"},
                "a",
            ),
        ),
        f"{expressions}[].key": Cases(
            valid=("a", "example.com/team", "a" * 253 + "/" + "b" * 63),
            invalid=("", "a b", "/a", "a/", "ä", "a\n", "a" * 64, "a" * 254 + "/b", "a" * 318, *NOT_TEXT),
        ),
        f"{expressions}[].operator": Cases(
            valid=("In", "NotIn"),
            invalid=(
                "",
                "in",
                "Like",
                At("Exists", f"{expressions}[0].values"),
                At("DoesNotExist", f"{expressions}[0].values"),
                *NOT_TEXT,
            ),
        ),
        f"{expressions}[].values": Cases(
            valid=(["x"], [""], ["x", "x"], ["x"] * 64),
            invalid=([], None, LEFT_OUT, ["x y"], ["x\n"], ["b" * 64], ["ä"], [None], [3], ["x"] * 65, "x", {"a": "b"}),
        ),
    }


def _amount(largest: int) -> Cases:
    """A quantity above 0."""
    digits = len(str(largest)) - 1
    return Cases(
        valid=(
            *(1, 100, largest, "100", "2.5", ".5", "5.", "+5", "500m", "1n", "0.1n", "1k", "1e3", "1E3"),
            *(f"1e{digits}", "1e-999", "0.0000000001", "0" * 63 + "1", "1e-7", "0.001M", None, LEFT_OUT),
        ),
        invalid=(
            *(0, -1, largest + 1, 2**63, -(2**63), True, [], {}, {"a": 1}, [{"a": 1}]),
            *("", "0", "-5M", f"1e{digits + 1}", "1e309", "1e999", "1e1000", "1e1000000000000", "1E", "1Ei", "1e"),
            *("１", "1_0", " 1", "1 ", "1\n", "0x10", "NaN", "inf", "1,5", "--1", "1.2.3", ".", "-", "1mm", "1K"),
            *(f"{largest}.0000000001", "9" * 64, "0" * 64 + "1", MEGABYTE, "ä" * 65, "-0", "-1n", "0e9", "1Kib"),
            *map(number, ("1.5", "100.0", "1e2", "1e400", "9223372036854775808", "1e30")),
        ),
    )


_LENGTH = Cases(
    valid=(
        *("90s", "30m", "1h", "1h30m", "1h30m5s", "1h5s", "99999h999999m9999999s", "0h1m", "00001h", "0h0m1s"),
        *(None, LEFT_OUT),
    ),
    invalid=(
        *("", "0s", "0h0m0s", "000m", "1", "h", "1d", "1.5h", "-1h", "+1h", "1h 30m", "1H", "30m1h", "1m1m", "500ms"),
        *("100000h", "1h\n", " 1h", "１h", "1h" * 13, MEGABYTE, *NOT_TEXT),
    ),
)
_SHARES = [1, 25, 50, 75, 100, 120, 500, 999]


def _steps(*pairs: str) -> list[dict[str, str]]:
    """Steps from texts such as `80% Hold`."""
    return [dict(zip(("at", "action"), each.split(" "), strict=True)) for each in pairs]


_ENFORCEMENT_FIELDS: dict[str, Cases] = {
    "spec.enforcement.action": Cases(
        valid=("AlertOnly", "Pause", "Hold", "Suspend", "Evict"),
        invalid=(
            *("", "evict", "Delete", "Evict ", *NOT_TEXT),
            *(At(value, "spec.enforcement") for value in (None, LEFT_OUT)),
        ),
        beside={"spec.homeCluster": LEFT_OUT, "spec.enforcement.steps": LEFT_OUT},
    ),
    "spec.enforcement.steps": Cases(
        valid=(
            _steps("100% Evict"),
            _steps("50% AlertOnly", "80% Pause", "100% Hold", "110% Suspend", "120% Evict"),
            _steps("80% Hold", "100% Hold"),
            _steps("9% AlertOnly", "10% AlertOnly", "100% Evict"),
            _steps(*(f"{each}% AlertOnly" for each in _SHARES)),
        ),
        invalid=(
            _steps("100% Hold", "80% AlertOnly"),
            _steps("80% AlertOnly", "120% Evict", "100% Hold"),
            _steps("100% Hold", "99% Hold"),
            _steps("80% Hold", "80% Hold"),
            _steps("80% AlertOnly", "80% Hold"),
            _steps(*(f"{each}% AlertOnly" for each in (*_SHARES[:-1], 998, 999))),
            *([{}], [{"at": "80%"}], [{"action": "Hold"}], [None], ["80%"], {"80%": "Hold"}, "80%"),
            *(At(None, "spec.enforcement"), At(LEFT_OUT, "spec.enforcement"), At([], "spec.enforcement")),
        ),
        beside={"spec.homeCluster": LEFT_OUT},
    ),
    "spec.enforcement.steps[].at": Cases(
        valid=("1%", "50%", "99%"),
        invalid=(
            *("", "%", "8", "80", "0%", "05%", "080%", "-5%", "80 %", "80.5%", "80 percent", "80%%", "1000%"),
            *("８0%", "80%\n", " 80%", "0.8", None, LEFT_OUT, MEGABYTE, *NOT_TEXT),
            *(At("100%", "spec.enforcement.steps"), At("101%", "spec.enforcement.steps")),
        ),
    ),
    "spec.enforcement.steps[].action": Cases(
        valid=("AlertOnly", "Pause", "Hold", "Suspend", "Evict"),
        invalid=("", "hold", "Delete", "Hold ", None, LEFT_OUT, *NOT_TEXT),
        beside={"spec.homeCluster": LEFT_OUT},
    ),
    "spec.enforcement.steps[].afterDeadline": Cases(
        valid=("Delete", None, LEFT_OUT),
        invalid=("", "delete", "Evict", "Delete ", *NOT_TEXT),
        beside={"spec.homeCluster": LEFT_OUT, "spec.enforcement.steps[].action": "Evict"},
    ),
    "spec.enforcement.steps[].graceForDisruptionBudgets": _LENGTH,
    "spec.enforcement.gracePeriodSeconds": whole(0, 7 * 86400),
    "spec.enforcement.releaseHorizon": _LENGTH,
    "spec.enforcement.recoverWithin": _LENGTH,
    "spec.enforcement.order": Cases(
        valid=("LeastLost", "WorstOffender", None, LEFT_OUT),
        invalid=("", "leastLost", "Youngest", "LeastLost\n", *NOT_TEXT),
    ),
    "spec.enforcement.evictionsPerMinute": whole(1, 600),
}

BUDGET_FIELDS: dict[str, Cases] = {
    "spec.paused": BOOL,
    **_selector_fields("spec.selector"),
    **_selector_fields("spec.namespaceSelector"),
    "spec.quota.gpuHours": _amount(10**9),
    "spec.quota.usd": _amount(10**9),
    "spec.quota.windowHours": whole(1, 24 * 366),
    **_ENFORCEMENT_FIELDS,
    "spec.gpuResourceName": Cases(
        valid=("nvidia.com/gpu", "cpu", "nvidia.com/mig-1g.5gb", "a" * 253 + "/" + "b" * 63, None, LEFT_OUT),
        invalid=(
            *("", "nvidia com/gpu", "/gpu", "nvidia.com/", "ｇpu", "gpu\n", "a" * 64, "a" * 254 + "/b", "gpu*"),
            *NOT_TEXT,
        ),
    ),
    "spec.gpuResources": Cases(
        valid=(
            *([], None, LEFT_OUT, [{"name": "cpu"}]),
            [{"name": f"nvidia.com/mig-{i}g*", "weight": i + 1} for i in range(16)],
        ),
        invalid=(
            [{"name": "a"}, {"name": "a", "weight": 2}],
            [{"name": f"a{i}"} for i in range(17)],
            *([{}], [{"weight": 1}], [None], ["nvidia.com/gpu"], {"nvidia.com/gpu": 1}, "nvidia.com/gpu"),
        ),
    ),
    "spec.gpuResources[].name": Cases(
        valid=(
            *("nvidia.com/gpu.shared", "amd.com/gpu", "cpu", "gpu.nvidia.com", "a-b." * 62 + "abcde"),
            *("amd.com/*", "nvidia.com/mig-1g.*", "n*", "nvidia.com*", "a" * 253 + "/" + "b" * 63),
            "a" * 253 + "/" + "b" * 62 + "*",
        ),
        invalid=(
            *("", "*", "/*", "/gpu", "nvidia.com/", "a**", "a*b", "*a", "nvidia.com/-*", "a/b/*", "A.com/*", "a b*"),
            *("ä*", "a*\n", "a\n", "a" * 254, "a" * 254 + "/b", "a" * 254 + "/*", "a" * 318, "A" * 64, "a/" + "b" * 64),
            *NOT_TEXT,
        ),
    ),
    "spec.gpuResources[].weight": _amount(1000),
    "spec.accounting": Cases(
        valid=("Exact", "BestEffort", None, LEFT_OUT), invalid=("", "exact", "Best", "Exact\n", *NOT_TEXT)
    ),
    "spec.homeCluster": free_text(253, "fleet-eu"),
}
