"""How fast what-if is: months of a trace of 1,500 nodes and 8,000 pods under two policies, against the full simulator on a small slice.

    make bench NAME=simulate                          the whole trace, both policies (some minutes)
    make bench NAME=simulate ARGS="--days 10"         only its last days; nothing is kept

The trace is openb's default one where HEADROOM_DATA names a folder that has it, else one made up of the same size and form. Time is
that of both replays together, so a factor of 1,000 means that a week under two policies takes less than a quarter of an hour. The
slice is played by the full simulator with the production operator and by the replay, and both must come to the same GPU-hours.
"""

import argparse
import os
import random
import sys
import time
from pathlib import Path

from bench import results
from bench.results import Row
from headroom.adapters import documents
from headroom.model.pace import Pace
from headroom.model.world import by_ref
from headroom.sim.whatif import policy, traces
from headroom.sim.whatif.measures import PolicyOutcome
from headroom.sim.whatif.outcome import outcome
from headroom.sim.whatif.replay import pace_of, replay
from headroom.sim.whatif.work import Case
from tests.sim import test_whatif_parity as parity

SEED = 7
NODES, PODS = 1523, 8152
SECONDS = 149 * 86400
KINDS = ((0, 310, ""), (8, 616, "G2"), (2, 518, "T4"), (4, 54, "V100M16"), (1, 25, "A10"))
"""GPUs, nodes that have so many, and their model."""
BUDGET = """
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {name: %s, namespace: default}
spec:
  selector: {matchLabels: {qos: %s}}
  quota: {gpuHours: "%s", windowHours: %d}
  enforcement: {steps: [%s]}
---
"""
ALERTS = '{at: "100%", action: AlertOnly}'
ACTS = '{at: "80%", action: AlertOnly}, {at: "100%", action: Hold}, {at: "120%", action: Evict}'
QUOTAS = (("best-effort", "BE", "60", 24), ("latency", "LS", "6000", 168), ("burst", "Burstable", "3000", 168))


def say(text: str) -> None:
    """A line of progress."""
    print(f"simulate: {text}", file=sys.stderr, flush=True)


def made_up() -> tuple[traces.Text, traces.Text]:
    """A trace as openb has them: few long pods from the begin on, most of them short ones in the last month."""
    rng = random.Random(SEED)
    nodes = ["sn,cpu_milli,memory_mib,gpu,model"]
    for gpus, count, model in KINDS:
        nodes += [f"node-{gpus}-{number:04d},96000,786432,{gpus},{model}" for number in range(count)]
    pods = [
        ",".join(
            (
                *traces.OPENB_PODS[:1],
                "cpu_milli,memory_mib",
                *traces.OPENB_PODS[1:3],
                "gpu_spec,qos,pod_phase",
                *traces.OPENB_PODS[3:],
            )
        )
    ]
    for number in range(PODS):
        is_early = number < PODS // 400
        arrives = rng.randrange(SECONDS * 3 // 4) if is_early else SECONDS * 3 // 4 + rng.randrange(SECONDS // 4)
        length = SECONDS - arrives if is_early else min(int(rng.lognormvariate(6.3, 1.6)), SECONDS - arrives)
        cards, share = rng.choices(((1, 1000), (1, rng.randrange(100, 1000, 10)), (0, 0), (8, 1000)), (50, 36, 13, 1))[
            0
        ]
        qos = "LS" if is_early else rng.choices(("LS", "BE", "Burstable"), (57, 42, 1))[0]
        pods.append(
            f"pod-{number:04d},8000,16384,{cards},{share},,{qos},Running,{arrives},{arrives + length},{arrives}"
        )
    return ("pods.csv", "\n".join(pods).encode()), ("nodes.csv", "\n".join(nodes).encode())


def trace() -> tuple[str, traces.Text, traces.Text]:
    """What is played, and what to call it."""
    folder = os.environ.get("HEADROOM_DATA")
    files = [
        Path(folder or "") / "openb" / name for name in ("openb_pod_list_default.csv", "openb_node_list_all_node.csv")
    ]
    if folder and all(file.is_file() for file in files):
        pods, nodes = ((file.name, file.read_bytes()) for file in files)
        return "openb", pods, nodes
    return "made up", *made_up()


def budgets(steps: str) -> str:
    """The policies as manifests."""
    return "".join(BUDGET % (*quota, steps) for quota in QUOTAS)


def played(case: Case, text: str) -> tuple[PolicyOutcome, float, float]:
    """What comes of some policies; seconds, and seconds of CPU."""
    found = documents.read([("policy", text.encode())])
    assert not found.problems, found.problems
    resources = policy.changed({}, by_ref(found.resources).values(), ())
    began, cpu = time.perf_counter(), time.process_time()
    log = replay(case, resources)
    took = time.perf_counter() - began, time.process_time() - cpu
    return outcome(case, resources, log), *took


def measure_trace(days: float | None) -> list[Row]:
    """Both policies over a whole trace."""
    name, pods, nodes = trace()
    case = traces.read(pods, nodes, None, traces.Naming(team="{qos}"), days=days)
    span = (case.end - case.begin) / 1000
    say(
        f"{name}: {len(case.works):,} pods, {len(case.nodes):,} nodes, {span / 86400:.1f} days, asked every {pace_of(case) / 1000:g} s"
    )
    free, wall_free, cpu_free = played(case, budgets(ALERTS))
    say(f"budgets that alert: {wall_free:.1f} s, {free.passes:,} passes")
    held, wall_held, cpu_held = played(case, budgets(ACTS))
    say(
        f"budgets that hold and evict: {wall_held:.1f} s, {held.passes:,} passes; held {held.held}, evicted {held.evictions}"
    )
    both = wall_free + wall_held
    what = f"{name}, {len(case.nodes):,} nodes, {len(case.works):,} pods, {span / 86400:.0f} days"
    return [
        Row(
            figure=f"{what}: times real time, two policies", value=round(span / both), unit="x", goal=1000, sense="min"
        ),
        Row(figure="the same, both replays", value=round(both, 1), unit="s"),
        Row(figure="the same, CPU", value=round(cpu_free + cpu_held, 1), unit="s"),
        Row(figure="budgets that only alert: times real time", value=round(span / wall_free), unit="x"),
        Row(figure="budgets that hold and evict: times real time", value=round(span / wall_held), unit="x"),
        Row(figure="times the plans were asked, both", value=free.passes + held.passes, unit="passes"),
        Row(figure="pods held, and pods evicted, by the second", value=held.held + held.evictions, unit="pods"),
    ]


def measure_slice() -> list[Row]:
    """The full simulator and the replay on the same small slice."""
    jobs, policies = parity.MIXED, [parity.VISION, parity.ALL]
    say("the same slice by the full simulator and by the replay")
    cpu = time.process_time()
    parity.full(jobs, policies, "2h", Pace())
    at_its_pace = 2 * 3600 / (time.process_time() - cpu)
    cpu = time.process_time()
    wanted, _ = parity.full(jobs, policies, "36h")
    slow = time.process_time() - cpu
    cpu = time.process_time()
    found, _ = parity.quick(jobs, policies, "36h")
    quick = time.process_time() - cpu
    apart = max(
        abs(one - other) / 1000
        for name in wanted.starts
        for one, other in zip(found.starts[name], wanted.starts[name], strict=True)
    )
    what = f"{len(jobs)} Jobs, two budgets"
    return [
        Row(
            figure=f"{what}: times real time",
            value=round(36 * 3600 / quick),
            unit="x",
            peer="full simulator at the operator's pace",
            peer_value=round(at_its_pace),
        ),
        Row(
            figure=f"{what}, 36 h: CPU of the full simulator, slowed down as in tests / ours",
            value=round(slow / quick, 1),
            unit="x",
            goal=1,
            sense="min",
            peer="full simulator (s)",
            peer_value=round(slow, 1),
        ),
        Row(figure="the same: a start differs by at most", value=round(apart, 1), unit="s", goal=30),
        Row(
            figure="the same: GPU-hours differ by",
            value=round(100 * abs(found.gpu_hours / wanted.gpu_hours - 1), 3),
            unit="%",
            goal=0.2,
        ),
        Row(
            figure="the same: Jobs stopped by one and not by the other",
            value=len(found.stopped ^ wanted.stopped),
            unit="Jobs",
            goal=0,
        ),
    ]


def main(arguments: list[str]) -> int:
    """Measure, and keep it if it is all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float)
    wishes = parser.parse_args(arguments)
    rows = measure_trace(wishes.days) + measure_slice()
    if wishes.days is not None:
        for row in rows:
            say(f"{row.figure}: {row.value:g} {row.unit}")
        return 0
    return 1 if results.write("simulate", rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
