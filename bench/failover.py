"""How long until the next replica acts after the leader was killed, or stopped in good order.

    make bench NAME=failover

Two operators run against a real API server with work always waiting (pods to evict, one after the other). The leader is killed with
SIGKILL, or ended with SIGTERM, and the time until the next eviction is taken; then a new standby is started. Wall time on a shared
machine, so the worst of several rounds counts.
"""

import signal
import sys
import tempfile
import time
from pathlib import Path

from bench import results
from bench.results import Row
from tests.control_plane import ControlPlane
from tests.integration.replicas import Replicas, audited

ROUNDS = 3
POLL_SECONDS = 0.05


def gap(replicas: Replicas, how: signal.Signals) -> float:
    """Seconds from ending the leader to the first effect of the next one."""
    leader = replicas.leader()
    began = time.monotonic()
    replicas.end(leader, how)
    ended = replicas.going()  # the leader is gone: nothing more can come from it
    while replicas.going() == ended:
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


def main() -> int:
    """Measure and write the results."""
    gaps: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGTERM: []}
    with tempfile.TemporaryDirectory() as folder:
        audit = Path(folder)
        with ControlPlane(components=(), apiserver_flags=audited(audit)) as plane:
            replicas = Replicas(plane, audit)
            try:
                replicas.prepare(0)
                replicas.start()
                for number in range(2 * ROUNDS):
                    how = (signal.SIGKILL, signal.SIGTERM)[number % 2]
                    standby = replicas.start()
                    while "the view is complete" not in replicas.log(standby):
                        time.sleep(POLL_SECONDS)
                    before = replicas.going()
                    replicas.add_pods(40, prefix=f"round-{number}")
                    replicas.wait_for(before + 3)
                    gaps[how].append(gap(replicas, how))
                    print(f"failover: {how.name} {gaps[how][-1]:.2f} s", file=sys.stderr, flush=True)
                    replicas.wait_for(before + 40)
            finally:
                replicas.end_all()
            twice = sum(count - 1 for count in replicas.evictions().values())
    rows = [
        Row(
            figure="leader killed: next effect after, worst",
            value=round(max(gaps[signal.SIGKILL]), 2),
            unit="s",
            goal=20,
        ),
        Row(
            figure="leader stopped: next effect after, worst",
            value=round(max(gaps[signal.SIGTERM]), 2),
            unit="s",
            goal=3,
        ),
        Row(figure="evictions done twice", value=twice, unit="evictions", goal=0),
    ]
    return 1 if results.write("failover", rows) else 0


if __name__ == "__main__":
    sys.exit(main())
