"""A region of a simulated cloud as the production adapter speaks to clouds: an `adapters.clouds.providers.Provider`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from msgspec import structs

from headroom.adapters.clouds.providers import (
    DEAREST,
    MICRO,
    BadCredentials,
    CloudThrottled,
    LaunchRequest,
    NotLaunched,
    NotPermitted,
    QuoteRequest,
    ReclaimNotice,
    unknown_ids,
)
from headroom.api.marks import CLUSTER_TAG
from headroom.model.cloud_facts import Instance, Offer
from headroom.model.errors import Unavailable
from headroom.sim import cloud as simulated
from headroom.sim.cloud import CallRefused, Cloud, RequestedLaunch, UnknownLaunch

T = TypeVar("T")


class SimProvider:
    """One region, with keys that are right or not."""

    def __init__(self, cloud: Cloud, *, known: bool = True) -> None:
        self._cloud, self._known = cloud, known

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """There is nothing to close."""

    async def identity(self) -> str:
        """It has none."""
        return ""

    async def machines(self, cluster: str) -> list[Instance]:
        """Every machine with the cluster's tag, read to the end."""
        found: list[Instance] = []
        place: int | None = 0
        lag = self._cloud.lag()
        while place is not None:
            start = place
            # mypy cannot tell the type of a lambda with a default.
            page, place = self._asked("listing machines", lambda start=start: self._page(cluster, start, lag))  # type: ignore[misc]
            found += page
        return found

    def _page(self, cluster: str, start: int, lag: int) -> tuple[list[Instance], int | None]:
        return self._cloud.page({CLUSTER_TAG: cluster}, start, lag)

    async def describe(self, ids: Sequence[str]) -> dict[str, Instance]:
        """Machines by id."""
        found = self._asked("reading machines", lambda: self._cloud.describe(ids))
        return found | unknown_ids(ids, found, self._cloud.provider, self._cloud.region)

    async def launch(self, request: LaunchRequest) -> Instance:
        """Launch a machine, or learn which one the token has launched."""
        order = RequestedLaunch(
            token=request.token,
            instance_type=request.instance_type,
            zone=request.zone,
            tags=request.tags,
            max_price=request.max_price,
            user_data=request.user_data.get("userData", ""),
        )
        try:
            made = self._asked("launching a machine", lambda: self._cloud.launch(order))
        except simulated.LaunchRefused as none:
            raise NotLaunched(none.outcome, str(none)) from None
        except (BadCredentials, NotPermitted) as denied:
            raise NotLaunched("Refused", str(denied), before_token=True) from None
        except Unavailable as unknown:
            raise NotLaunched("Unknown", str(unknown)) from None
        machine = self._cloud.machines[made]
        return Instance(
            name=made,
            provider=self._cloud.provider,
            region=self._cloud.region,
            zone=order.zone,
            instance_type=order.instance_type,
            state="PENDING",
            tags=dict(order.tags),
            launched_at=machine.made,
            price_per_hour=machine.price,
        )

    async def terminate(self, ids: Sequence[str]) -> None:
        """End machines."""
        for each in ids:
            # mypy cannot tell the type of a lambda with a default.
            self._asked("ending machines", lambda each=each: self._cloud.terminate(each))  # type: ignore[misc]

    async def offers(self, question: QuoteRequest) -> list[Offer]:
        """What can be had, at which price."""
        every = self._asked("reading prices", self._cloud.offers)
        asked = [it for it in every if it.instance_type in question.types]
        return [
            structs.replace(it, at=question.now, price_per_hour=_believed(it.price_per_hour))
            for it in asked
            if not question.zones or it.zone in question.zones
        ]

    async def notices(self) -> list[ReclaimNotice] | None:
        """Which machines it will take back."""
        every = self._cloud.machines.values()
        return [
            ReclaimNotice(it.id, it.reclaim[1])
            for it in every
            if it.reclaim is not None and self._cloud.is_alive(it.id)
        ]

    def _asked(self, doing: str, call: Callable[[], T]) -> T:
        if not self._known:
            raise BadCredentials(f"{doing}: the cloud does not know these keys")
        try:
            return call()
        except UnknownLaunch:
            raise Unavailable(f"{doing}: no answer came") from None
        except CallRefused as refused:
            kind = CloudThrottled if refused.problem == "Throttled" else NotPermitted
            raise kind(f"{doing}: {refused}") from None


def _believed(price: int | None) -> int | None:
    return price if price is not None and 0 < price <= DEAREST * MICRO else None
