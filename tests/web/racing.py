"""Extender mode against a kube-scheduler that does whatever it may, drawn by a seed: it takes any node of an answer, binds late, forgets,
asks again, crashes, and another scheduler binds beside it, while the watch lags or stalls and the extender itself starts anew.

What is given out is added up from the pods as the API server would have them; nothing of the extender is used to find the truth.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from typing import Any, Final

from headroom.adapters.kube.node_links import Edited
from headroom.core.bandwidth import FourRates, Placement, Touching, ask_of
from headroom.model.bandwidth import MEGABIT, BandwidthRules
from headroom.model.facts import Owner, Pod
from headroom.runtime.logs import Silent
from headroom.web.extender.cluster import PlacementSink
from headroom.web.extender.service import Extender
from tests.builders import a_pod

RULES: Final = BandwidthRules()
CARD: Final = 1_000 * MEGABIT
SIZE: Final[FourRates] = (2_500 * MEGABIT, 2_500 * MEGABIT, CARD, CARD)
NODES: Final = tuple(f"n{number}" for number in range(5))
UP, DOWN, TRAFFIC = "kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth", "headroom.dev/traffic"
MOST_PODS: Final = 40
LONGEST_BIND: Final = 30.0
"""Seconds from an answer to its bind; the hold is longer, and so is what the watch may lag behind."""
STALL: Final = 100.0
STEPS: Final = {
    "create": 16,
    "ask": 30,
    "bind": 20,
    "news": 24,
    "time": 12,
    "end": 10,
    "edit": 3,
    "node": 2,
    "forget": 2,
    "stall": 0.3,
    "scheduler_crashes": 0.3,
    "extender_crashes": 0.15,
    "lease_is_lost": 0.1,
    "unasked": 0.4,
}


class StillClock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now(self) -> int:
        return round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Race:
    """One history."""

    def __init__(self, seed: str) -> None:
        self.dice, self.clock = random.Random(seed), StillClock()
        self.candidates = self.dice.choice((1, 1, 1, 2, 3))
        self.made, self.steps = 0, 0
        self.pods: dict[str, Pod] = {}
        """What the API server has."""
        self.reserved: dict[str, Pod] = {}
        """The bound ones as they were then."""
        self.nodes = set(NODES)
        self.binding: dict[str, tuple[str, float]] = {}
        """By uid: where kube-scheduler binds it, and when that is done."""
        self.news: deque[tuple[str, Pod]] = deque()
        self.silent_until = self.heard = 0.0
        self.leads = True
        self.unasked: set[str] = set()
        """Uids of those that somebody bound without a question."""
        self.spoiled: set[str] = set()
        """Nodes with a link given out twice by these."""
        self.did: Counter[str] = Counter()
        self._start()

    def _start(self) -> None:
        """A new process of the extender."""
        touching = Touching(Placement(self.candidates))
        self.extender = Extender(touching, RULES, clock=self.clock, log=Silent(), leads=lambda: self.leads)
        self.sink = PlacementSink(touching, RULES, self.extender.now)
        self.extender.watch(lambda: "", lambda: self.heard, self.sink.key_of)
        self.news.clear()
        self.heard, self.silent_until = self.clock.seconds, 0.0
        for name in sorted(self.nodes):
            touching.placement.set_node(name, SIZE)
        by_node: dict[str, list[Edited]] = defaultdict(list)
        for uid, first in self.reserved.items():
            if self.pods[uid].annotations != first.annotations:
                ask = ask_of(first, RULES)
                by_node[first.node].append(Edited(uid, ask.up, ask.down, siblings=ask.siblings_only))
        for node, edited in by_node.items():
            self.sink.edited(node, edited)
        for pod in self.pods.values():
            self.sink.put(pod, listed=True)
        self.extender.look()

    def run(self, steps: int) -> None:
        """So many steps; raises if a link is given out twice."""
        names, weights = list(STEPS), list(STEPS.values())
        for what in self.dice.choices(names, weights, k=steps):
            self.steps += 1
            getattr(self, f"_{what}")()
            self._check(what)

    # The cluster

    def _put(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        self.news.append(("put", pod))

    def _create(self) -> None:
        if len(self.pods) >= MOST_PODS:
            return
        self.made += 1
        dice, uid = self.dice, f"uid-{self.made}"
        owner = dice.choice((None, *(Owner("StatefulSet", f"set-{each}", f"set-{each}", "apps") for each in range(4))))
        notes = [(DOWN, dice.choice(("50M", "300M", "600M", "1G"))), (UP, dice.choice(("1k", "200M", "700M")))]
        notes += [(TRAFFIC, "siblings")] * (owner is not None and dice.random() < 0.6)
        # Names come back, uids never.
        name = f"pod-{dice.randrange(2 * MOST_PODS)}"
        self._put(a_pod(name, uid=uid, node="", gpus=0, owner=owner, annotations=tuple(sorted(notes))))

    def _end(self) -> None:
        if self.pods:
            uid = self.dice.choice(list(self.pods))
            self.news.append(("gone", self.pods.pop(uid)))
            self.reserved.pop(uid, None)

    def _edit(self) -> None:
        """After the bind; before it the policies forbid it."""
        if self.reserved:
            pod = self.pods[self.dice.choice(list(self.reserved))]
            notes = dict(pod.annotations) | {UP: self.dice.choice(("1k", "1P", "-5M", "1e309"))}
            if self.dice.random() < 0.5:
                notes[TRAFFIC] = "siblings"
            self._put(changed(pod, annotations=tuple(sorted(notes.items()))))

    def _node(self) -> None:
        name = self.dice.choice(NODES)
        if name in self.nodes:
            self.nodes.discard(name)
            self.extender.placement.remove_node(name)
        else:
            self.nodes.add(name)
            self.extender.placement.set_node(name, SIZE)

    def _unasked(self) -> None:
        """Another scheduler, or a pod that names its node."""
        if pending := self._pending():
            pod = self.dice.choice(pending)
            self.unasked.add(pod.uid)
            self._bound(pod, self.dice.choice(NODES))

    # kube-scheduler

    def _pending(self) -> list[Pod]:
        return [each for each in self.pods.values() if not each.node and each.uid not in self.binding]

    def _ask(self) -> None:
        """Sometimes twice; and what comes too late, or not to kube-scheduler's liking, it forgets."""
        if not (pending := self._pending()):
            return
        pod = self.dice.choice(pending)
        for _ in range(self.dice.choice((1, 1, 1, 2))):
            names = self.dice.sample((*NODES, "gone"), self.dice.randrange(1, len(NODES) + 1))
            self.extender.heard(pod)
            if self.extender.unready():
                self.did["unready"] += 1
                return
            verdict = self.extender.filter(pod, names)[0]
            assert sorted([*verdict.passed, *verdict.refused()]) == sorted(names)
            assert not set(verdict.passed) - self.nodes
        self.did["answered" if verdict.passed else "refused"] += 1
        if not verdict.passed:
            on_nodes = {name: [uid for uid, each in sorted(self.pods.items()) if each.node == name] for name in NODES}
            self.did["preempts"] += bool(self.extender.fits_without(pod, on_nodes))
        if verdict.passed and self.dice.random() < 0.8:
            within = self.clock.seconds + self.dice.choice((0.0, 0.1, 1.0, LONGEST_BIND)) * self.dice.random()
            self.binding[pod.uid] = self.dice.choice(verdict.passed), within

    def _bind(self) -> None:
        for uid, (node, at) in sorted(self.binding.items()):
            if at <= self.clock.seconds:
                del self.binding[uid]
                if (pod := self.pods.get(uid)) is not None and self.dice.random() < 0.95:
                    self._bound(pod, node)

    def _bound(self, pod: Pod, node: str) -> None:
        self.did["bound"] += 1
        self._put(changed(pod, node=node))
        self.reserved[pod.uid] = self.pods[pod.uid]

    def _forget(self) -> None:
        """A bind that the API server refuses."""
        if self.binding:
            del self.binding[self.dice.choice(sorted(self.binding))]

    def _scheduler_crashes(self) -> None:
        """What it had sent arrives; the rest it knows nothing of any more."""
        for uid, (node, _) in sorted(self.binding.items()):
            if uid in self.pods and self.dice.random() < 0.5:
                self._bound(self.pods[uid], node)
        self.binding.clear()

    # The extender

    def _news(self) -> None:
        if self.clock.seconds < self.silent_until:
            return
        for _ in range(self.dice.choice((0, 1, 3, len(self.news)))):
            if self.news:
                what, pod = self.news.popleft()
                self.sink.put(pod) if what == "put" else self.sink.remove(pod.uid, None, 0)
        if not self.news:
            self.heard = self.clock.seconds  # nothing that happened is hidden

    def _time(self) -> None:
        """Binds are never later than they may be."""
        self.clock.seconds += self.dice.choice((0.1, 0.5, 2.0, 10.0))
        self._bind()
        self.extender.placement.expire(self.extender.shown())
        self.extender.look()
        self.extender.touching.due(self.extender.now())

    def _stall(self) -> None:
        self.silent_until = self.clock.seconds + STALL * self.dice.random()

    def _extender_crashes(self) -> None:
        self.did["restarts"] += 1
        self._start()

    def _lease_is_lost(self) -> None:
        """And comes back, after somebody else may have answered."""
        self.leads = False
        self.extender.look()
        self.leads = True

    # The truth

    def given(self) -> dict[str, list[int]]:
        """What each node's links carry, by what its pods asked for when they were bound."""
        spread: dict[str, set[str]] = defaultdict(set)
        members: Counter[str] = Counter()
        asks = [(ask_of(pod, RULES), pod.node) for pod in self.reserved.values()]
        for ask, node in asks:
            spread[ask.group].add(node)
            members[ask.group] += 1
        found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for ask, node in asks:
            on_card = not (ask.may_be_local and len(spread[ask.group]) == 1)
            for index, more in enumerate((ask.up, ask.down, ask.up * on_card, ask.down * on_card)):
                found[node][index] += more
        return found

    def _used_unasked(self) -> set[str]:
        """Their nodes, and those of their siblings, who may talk over their cards for them."""
        groups = {ask_of(pod, RULES).group for uid, pod in self.reserved.items() if uid in self.unasked} - {""}
        return {
            pod.node for uid, pod in self.reserved.items() if uid in self.unasked or ask_of(pod, RULES).group in groups
        }

    def _check(self, what: str) -> None:
        given = self.given()
        over = {
            node: [each // MEGABIT for each in taken]
            for node, taken in given.items()
            if any(each > size for each, size in zip(taken, SIZE, strict=True))
        }
        self.spoiled = (self.spoiled | self._used_unasked()) & over.keys()
        assert not over.keys() - self.spoiled, f"step {self.steps} ({what}): {over}"


def changed(pod: Pod, **fields: Any) -> Pod:
    """The next version of a pod."""
    version = str(int(pod.resource_version or "0") + 1)
    kept = {name: getattr(pod, name) for name in ("uid", "node", "owner", "annotations", "labels")}
    return a_pod(pod.name, gpus=0, resource_version=version, **(kept | fields))
