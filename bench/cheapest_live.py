"""A recorded week of spot prices, compressed, on the real Karpenter: nodes replaced and dollars paid, three ways.

    HEADROOM_DATA=FOLDER make bench NAME=cheapest_live                       25 samples, 20 s each (about ten minutes)
    HEADROOM_DATA=FOLDER make bench NAME=cheapest_live ARGS="--seconds 5"    faster, and further from a real week; nothing is kept

The three serve the same load side by side: one wide NodePool of Karpenter's alone, with its own defaults; one NodePool that is
rewritten to the cheapest offer at every sample, as the seed did; and a LeftoverNodePool. The week is the one since 2025 in which the
cheapest offer changed most often. Between two samples lie seven hours; Karpenter and the operator do not know that, so what they wait
for takes longer than in a real week: an empty node is kept for hours of it, which all three pay alike.
"""

import argparse
import csv
import gzip
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench import results
from bench.results import Row
from tests.integration.accounts import Document, condition
from tests.integration.enforced import is_running, wait_for
from tests.integration.karpented import NODE_CLAIMS, NODE_POOLS, Karpented, Ladder, harm_to, karpented_cluster
from tests.karpenter_lab import Sold

KINDS = tuple(f"{family}.{size}" for family in ("g4dn", "g5", "g6") for size in ("xlarge", "2xlarge"))
"""Machines with one GPU each."""
ZONES = "use1-"
SINCE = 1_735_689_600
"""2025."""
SAMPLES = 25
"""In a week."""
HOURS = 168 / SAMPLES
SECONDS = 20.0
LOAD = (6, 6, 3)
"""Pods with a GPU, at every third sample fewer: there are some three samples in a day."""
WAYS = {"wide": "Karpenter alone", "seed": "the seed's rewrite", "ours": "Headroom"}
Prices = Mapping[tuple[str, str], float]


# --- the week ---------------------------------------------------------------------------------------------------------------------


def week(folder: Path) -> list[Prices]:
    """What was offered at each sample of the week in which the cheapest offer changed most often."""
    every = list(snapshots(folder))
    firsts = [cheapest(each) for each in every]
    moves = [int(before != after) for before, after in itertools.pairwise(firsts)]
    starts = range(len(every) - SAMPLES + 1)
    best = max(starts, key=lambda start: (sum(moves[start : start + SAMPLES - 1]), -start))
    return every[best : best + SAMPLES]


def snapshots(folder: Path) -> Iterator[Prices]:
    """All samples since 2025, each as a whole."""
    with (folder / "snapshots.csv").open() as lines:
        moments = [int(each["unix_time"]) for each in csv.DictReader(lines)]
    known: dict[tuple[str, str], float] = {}
    changes = list(changed(folder))[::-1]
    for moment in moments:
        while changes and changes[-1][0] <= moment:
            _, key, price = changes.pop()
            known.pop(key, None)
            if price:
                known[key] = float(price)
        if moment >= SINCE:
            yield dict(known)


def changed(folder: Path) -> Iterator[tuple[int, tuple[str, str], str]]:
    """When which offer got which price, or none."""
    with gzip.open(folder / "train_us-east-1_us-west-2_us-east-2.csv.gz", "rt") as lines:
        for at, kind, zone, price in csv.reader(lines):
            if kind in KINDS and zone.startswith(ZONES):
                yield int(at), (kind, zone), price


def cheapest(prices: Prices) -> tuple[str, str]:
    """The first by name of those that cost least."""
    return min(prices, key=lambda key: (prices[key], key))


# --- the three ways ---------------------------------------------------------------------------------------------------------------


class Way:
    """One of the three, and its books."""

    def __init__(self, team: Ladder) -> None:
        self.team, self.name = team, team.name
        self.dollars, self.useful = 0.0, 0.0
        self.claims: dict[str, str] = {}
        """Every machine, and what it is."""

    def note(self, claims: Sequence[Document], prices: Prices, hours: float) -> None:
        """What was paid, and what it was good for, in so many hours."""
        mine = [each for each in claims if each["metadata"]["labels"].get("pool") == self.name and is_launched(each)]
        for each in mine:
            labels = each["metadata"]["labels"]
            key = (labels["node.kubernetes.io/instance-type"], labels["topology.kubernetes.io/zone"])
            self.claims[each["metadata"]["name"]] = "/".join(key)
            self.dollars += prices.get(key, 0) * hours
        self.useful += sum(map(is_running, self.team.pods())) * hours

    def rows(self, all_: Karpented) -> list[Row]:
        """As they are printed."""
        replaced = {each.partition(":")[0] for each in harm_to(all_, self.name, "DisruptionReason")}
        named = WAYS[self.name]
        print(f"{named}: {dict(Counter(self.claims.values()))}", file=sys.stderr, flush=True)
        return [
            Row(figure=f"{named}: nodes replaced", value=len(replaced), unit=""),
            Row(figure=f"{named}: nodes launched", value=len(self.claims), unit=""),
            Row(figure=f"{named}: paid", value=round(self.dollars, 2), unit="$"),
            Row(figure=f"{named}: paid per GPU-hour of work", value=round(self.dollars / self.useful, 4), unit="$"),
        ]


def are_ready(team: Ladder) -> bool:
    """Whether Karpenter takes all NodePools of one of them into account."""
    named = [
        each for each in team.api.items(NODE_POOLS) if each["metadata"]["name"].startswith(f"leftover-{team.name}")
    ]
    rungs = [each["name"] for each in team.rungs()]
    return len(named) >= max(1, len(rungs)) and all(
        condition(each.get("status", {}), "Ready")[0] == "True" for each in named
    )


def is_launched(claim: Document) -> bool:
    """Whether it is a machine by now."""
    return any(
        each["type"] == "Launched" and each["status"] == "True"
        for each in claim.get("status", {}).get("conditions", ())
    )


def node_pool(name: str, requirements: Mapping[str, Sequence[str]], disruption: Document) -> Document:
    """One of Karpenter's, for spot machines."""
    keys = {"karpenter.sh/capacity-type": ["spot"], **requirements}
    inner: Document = {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "requirements": [{"key": key, "operator": "In", "values": [*values]} for key, values in keys.items()],
    }
    spec = {"template": {"metadata": {"labels": {"pool": name}}, "spec": inner}, "disruption": disruption}
    metadata = {"name": f"leftover-{name}"}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata, "spec": spec}


def rewritten(prices: Prices) -> Document:
    """The seed's one NodePool: the cheapest offer, and nothing else."""
    kind, zone = cheapest(prices)
    only = {"node.kubernetes.io/instance-type": [kind], "topology.kubernetes.io/zone": [zone]}
    return node_pool("seed", only, {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s"})


def played(all_: Karpented, prices: Sequence[Prices], seconds: float) -> list[Row]:
    """The week."""
    show(all_, prices, 0)
    pools = [
        node_pool("wide", {"node.kubernetes.io/instance-type": KINDS}, {"consolidateAfter": "0s"}),
        rewritten(prices[0]),
    ]
    for pool in pools:
        all_.api.send("POST", NODE_POOLS, pool)
    teams = [Ladder(all_, name, (1, 1)) for name in ("wide", "seed")]
    families = sorted({kind.partition(".")[0] for kind in KINDS})
    teams.append(all_.ladder("ours", 1, 100, families=families, switchAfter="2s", minDwell="6s"))
    for each in teams:
        wait_for(lambda each=each: are_ready(each), "the NodePools are ready")  # type: ignore[misc]  # mypy cannot tell the type of a lambda with a default
    ways = [Way(each) for each in teams]
    for each in teams:
        each.work("train", LOAD[0])
    for number, now in enumerate(prices):
        show(all_, prices, number)
        all_.api.send("PATCH", f"{NODE_POOLS}/leftover-seed", {"spec": rewritten(now)["spec"]}, "merge")
        for each in teams:
            each.scale("train", LOAD[number % len(LOAD)])
        watch(all_, ways, now, seconds)
        print(f"sample {number + 1} of {len(prices)}: {cheapest(now)}", file=sys.stderr, flush=True)
    firsts = [*map(cheapest, prices)]
    moved = sum(before != after for before, after in itertools.pairwise(firsts))
    switches = teams[-1].ladder_status().get("switches", 0)
    return [
        Row(figure="the cheapest offer changed", value=moved, unit="times"),
        Row(figure="Headroom: the first rung changed", value=switches, unit="times"),
        *(row for way in ways for row in way.rows(all_)),
    ]


def show(all_: Karpented, prices: Sequence[Prices], number: int) -> None:
    """What is sold at a sample. What was sold in the week and is not now is sold out."""
    every = {key: price for each in prices for key, price in each.items()}
    now = prices[number]
    all_.market.show(
        Sold(
            kind=kind,
            zone=zone,
            dollars=now.get((kind, zone), price),
            mode="" if (kind, zone) in now else "hidden",
            told=(kind, zone) in now,
        )
        for (kind, zone), price in every.items()
    )


def watch(all_: Karpented, ways: Sequence[Way], prices: Prices, seconds: float) -> None:
    """Keep the books until the next sample."""
    began = before = time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        claims = all_.api.items(NODE_CLAIMS)
        for each in ways:
            each.note(claims, prices, (now - before) / seconds * HOURS)
        before = now
        time.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a sample is")
    given = parser.parse_args()
    folder = os.environ.get("HEADROOM_DATA")
    if not folder:
        print("cheapest_live: HEADROOM_DATA names no folder with the prices", file=sys.stderr)
        return 2
    prices = week(Path(folder) / "aws-spot-history")
    with tempfile.TemporaryDirectory() as scratch, karpented_cluster(Path(scratch)) as all_:
        rows = played(all_, prices, given.seconds)
        results.write("cheapest_live", rows, results.FOLDER if given.seconds == SECONDS else Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
