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
        "enforcement": {"action": "AlertOnly", "gracePeriodSeconds": 60},
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


BUDGET_FIELDS: dict[str, Cases] = {
    "spec.paused": BOOL,
    **_selector_fields("spec.selector"),
    **_selector_fields("spec.namespaceSelector"),
    "spec.quota.gpuHours": _amount(10**9),
    "spec.quota.usd": _amount(10**9),
    "spec.quota.windowHours": whole(1, 24 * 366),
    "spec.enforcement.action": Cases(
        valid=("AlertOnly", "Pause", "Hold", "Suspend", "Evict"),
        invalid=("", "evict", "Delete", "Evict ", None, LEFT_OUT, *NOT_TEXT),
        beside={"spec.homeCluster": LEFT_OUT},
    ),
    "spec.enforcement.gracePeriodSeconds": whole(0, 7 * 86400),
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
