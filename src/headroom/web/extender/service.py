"""One extender: when it may answer, what it answers, and which refused pods it brings back.

What an earlier process answered for is unknown to its successor until the binds are seen. So the successor does not answer before
kube-scheduler has asked about each pending pod, which shows that none of them is being bound just now, or before a hold of the earlier
process would have ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from headroom.core.bandwidth import TOUCHED_AT_ONCE, FilterAnswer, Touch, Touching, ask_of
from headroom.model.bandwidth import BandwidthRules
from headroom.model.errors import HeadroomError
from headroom.model.facts import Pod
from headroom.model.ports import Clock
from headroom.runtime.logs import Log
from headroom.web.extender import wire
from headroom.web.extender.metrics import ExtenderMetrics

LOOK_SECONDS: Final = 0.5
TOUCH_SECONDS: Final = 1.0
STANDBY: Final = "Another extender holds the lease; this one stands by."
STOPPING: Final = "This extender is ending."

Send = Callable[[Touch], Awaitable[None]]


class Extender:
    """Answers while it leads, sees the cluster and knows that nobody else's answers are still on their way."""

    def __init__(
        self,
        touching: Touching,
        rules: BandwidthRules,
        *,
        clock: Clock,
        log: Log,
        leads: Callable[[], bool],
    ) -> None:
        self.placement, self.touching = touching.placement, touching
        self.metrics = ExtenderMetrics(touching.placement, leads)
        self._rules, self._clock, self._log, self._leads = rules, clock, log, leads
        self._unseen: Callable[[], str] = lambda: "The cluster is not watched yet."
        self._heard: Callable[[], float] = lambda: float("-inf")
        self._key_of: Callable[[str], str] = lambda _uid: ""
        self._unheard: set[str] | None = None
        """Pending pods that kube-scheduler has not asked about since we lead; None while we do not."""
        self._prodded: set[str] = set()
        """Those of them that were touched."""
        self._settled_at = 0
        self._is_stopping = False
        self._said: str | None = None

    def watch(self, unseen: Callable[[], str], heard: Callable[[], float], key_of: Callable[[str], str]) -> None:
        """Know by these why the cluster is not seen completely, when the watch of pods last said something, and a pod's name by its uid."""
        self._unseen, self._heard, self._key_of = unseen, heard, key_of

    def now(self) -> int:
        """Milliseconds that never jump."""
        return round(self._clock.monotonic() * 1000)

    def shown(self) -> int:
        """Up to when binds were seen: a watch that is silent may be stuck, and hide one."""
        return min(self.now(), round(max(self._heard(), 0.0) * 1000))

    # What kube-scheduler asks

    def unready(self) -> str:
        """Why nothing can be answered now; empty if it can."""
        if self._is_stopping:
            return STOPPING
        if not self._leads():
            return STANDBY
        if why := self._unseen():
            return f"The cluster is not seen completely: {why}."
        if not self.placement.is_settled:
            waits = len(self._unheard) if self._unheard is not None else 0
            return f"An earlier extender may still have answers in flight: kube-scheduler may be binding {waits} pending pods."
        return ""

    def heard(self, pod: Pod) -> None:
        """kube-scheduler asks about this pod, so it does not bind it just now."""
        if self._unheard is not None:
            self._unheard.discard(pod.uid)
            self.look()

    def filter(self, pod: Pod, names: list[str]) -> tuple[FilterAnswer, bytes]:
        """Where it may go, and the same as kube-scheduler reads it."""
        ask, now = self.placement.at_least(ask_of(pod, self._rules)), self.now()
        verdict = self.placement.filter(ask, names, now)
        if verdict.passed:
            self.touching.forget(pod.uid)
        else:
            self.touching.refused(ask, pod.key, names, now)
        return verdict, wire.filtered(verdict, ask)

    def score(self, pod: Pod, names: list[str]) -> list[int]:
        """How good each node is for it."""
        return self.placement.score(self.placement.at_least(ask_of(pod, self._rules)), names)

    def fits_without(self, pod: Pod, victims: dict[str, list[str]]) -> list[str]:
        """The nodes where the pod would fit with these pods evicted."""
        return self.placement.fits_without(self.placement.at_least(ask_of(pod, self._rules)), victims)

    # What happens by itself

    async def run(self) -> None:
        """Look after the holds and the lease. Never returns."""
        shown = 0
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            # After a standstill much comes at once. What had begun to come by the last look is taken in by now.
            self.placement.expire(shown)
            shown = self.shown()
            self.look()
            self._say()

    async def bring_back(self, send: Send) -> None:
        """Tell kube-scheduler again of refused pods. Never returns; beside `run`, whose looks wait for no API server."""
        while True:
            await self._clock.sleep(TOUCH_SECONDS)
            if self._leads() and not self._is_stopping:
                await self._touch(self._to_touch(), send)

    async def stop(self, seconds: float) -> None:
        """Answer no more, and wait a while for the binds of what was answered."""
        self._is_stopping = True
        until = self._clock.monotonic() + seconds
        while self.placement.holds and self._clock.monotonic() < until:
            await self._clock.sleep(0.1)

    def look(self) -> None:
        """Whether we have begun to lead, or to answer, or ceased to."""
        if not self._leads():
            self._unheard, self.placement.is_settled = None, False
            self._prodded.clear()
        elif self._unheard is None and not self._unseen():
            self._unheard, self._settled_at = set(self.placement.waiting), self.now() + self.placement.hold_ms
        if self._unheard is None or self.placement.is_settled:
            return
        self._unheard &= self.placement.waiting.keys()
        if not self._unheard or self.shown() >= self._settled_at:
            self.placement.is_settled = True
            self._adopt(self._unheard)

    def _adopt(self, uids: set[str]) -> None:
        """Pending pods that nobody has asked about may have been refused by an earlier extender."""
        self.touching.adopt(((self._key_of(uid), self.placement.waiting[uid]) for uid in sorted(uids)), self.now())

    def _to_touch(self) -> Sequence[Touch]:
        if self.placement.is_settled:
            return [] if self.unready() else self.touching.due(self.now())
        # kube-scheduler then asks about them, and so shows that it does not bind them.
        fresh = sorted((self._unheard or set()) - self._prodded)[:TOUCHED_AT_ONCE]
        self._prodded.update(fresh)
        return [Touch(self._key_of(uid), uid) for uid in fresh]

    async def _touch(self, touches: Sequence[Touch], send: Send) -> None:
        for touch in touches:
            try:
                await send(touch)
                self.metrics.touched.inc()
            except HeadroomError as problem:
                self._log.debug("a pod could not be touched", pod=touch.key, why=str(problem))

    def _say(self) -> None:
        why = self.unready()
        if why != self._said:
            self._said = why
            self._log.info("answering" if not why else "not answering", why=why)
