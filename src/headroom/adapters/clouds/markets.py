"""Reads the markets of all LeftoverNodePools: each region once for all that share it and its keys, however often they look.

Each part of a market is read by a task of its own, so prices that are slow keep no scores waiting, and no other region.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct, field

from headroom.adapters.clouds import market as reading
from headroom.adapters.clouds.aws import usual_url
from headroom.adapters.clouds.aws_market import BURST, PER_SECOND, AwsMarket
from headroom.adapters.clouds.aws_sdk import Clients
from headroom.adapters.clouds.bucket import TokenBucket
from headroom.adapters.clouds.credentials import KEYS, CloudSecrets, plain_value
from headroom.adapters.clouds.market import RegionMarket
from headroom.adapters.clouds.providers import BadCredentials, Keys
from headroom.adapters.clouds.sessions import Places, SecretReader
from headroom.adapters.prices import confirmed
from headroom.adapters.usable_by import Use, check_usable
from headroom.api.kinds import AnyResource
from headroom.api.offers import LeftoverNodePoolSpec
from headroom.model.changes import Topic
from headroom.model.cloud_facts import Offer, OfferFeed
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.ports import Clock
from headroom.model.world import World

KIND: Final = "LeftoverNodePool"
FIELD: Final = "spec.credentialsSecretRef"
LOOK_SECONDS: Final = 300.0
"""For all that one part takes."""
RETRY_SECONDS: Final = 30.0
"""After a first failure; then twice as long each time."""
LONGEST_SECONDS: Final = 300.0
"""Whoever mends a Secret or a right should not wait for longer."""

Part = Literal["types", "spot", "on-demand", "scores"]
EVERY_SECONDS: Final[dict[Part, float]] = {"types": 3600.0, "spot": 300.0, "on-demand": 600.0, "scores": 600.0}
_TOLD: Final[dict[Part, tuple[Literal["Types", "Prices", "Scores"], str]]] = {
    "types": ("Types", "The machine types of {region} cannot be read"),
    "spot": ("Prices", "The spot prices of {region} cannot be read"),
    "scores": ("Scores", "The placement scores of {region} cannot be read"),
    "on-demand": ("Prices", "The on-demand prices of {region} cannot be read"),
}
"""What a part that fails is told as, the worst first."""

Tell = Callable[[Topic, str], None]


class MarketAccount(Struct, frozen=True, order=True):
    """What resources must have in common to be read for together. Those without a Secret come first."""

    region: str
    secret: str


class _Turn(Struct):
    """When a part is due, and how often it failed in a row."""

    due: float
    failures: int = 0
    problem: HeadroomError | None = None


class _Region(Struct, kw_only=True):
    """What is kept of one account."""

    market: RegionMarket
    bucket: TokenBucket
    turns: dict[Part, _Turn]
    members: list[AnyResource] = field(default_factory=list)
    offers: dict[str, Offer] = field(default_factory=dict)
    question: tuple[Any, ...] = ()
    """What the scores were asked for last."""
    looked_at: tuple[Any, list[LeftoverNodePoolSpec]] = (None, [])
    """The types and specs from which that follows."""
    denied: dict[str, HeadroomError] = field(default_factory=dict)
    """The resources that may not use the Secret that they name."""

    @property
    def specs(self) -> list[LeftoverNodePoolSpec]:
        return [each.spec for each in self.members]


class Markets:
    """Keeps the offers of regions, and how well they are known for each LeftoverNodePool."""

    def __init__(
        self, secrets: CloudSecrets, clients: Clients, places: Places, clock: Clock, rng: random.Random, tell: Tell
    ) -> None:
        self._secrets, self._clients, self._places = secrets, clients, places
        self._clock, self._rng, self._tell = clock, rng, tell
        self._regions: dict[MarketAccount, _Region] = {}
        self._tasks: dict[tuple[MarketAccount, Part], asyncio.Task[None]] = {}
        self.offers: Mapping[str, Offer] = {}
        """A new mapping whenever one is new."""
        self.feeds: Mapping[str, OfferFeed] = {}
        """By LeftoverNodePool; a new mapping whenever one is new."""

    def step(self, world: World) -> None:
        """Begin to read whatever is due."""
        shared: dict[MarketAccount, list[AnyResource]] = {}
        for _, each in world.of_kind(KIND):
            if isinstance(each.spec, LeftoverNodePoolSpec) and not each.deleting:
                ref = each.spec.credentials_secret_ref
                shared.setdefault(MarketAccount(each.spec.region, ref.name if ref else ""), []).append(each)
        for gone in self._regions.keys() - shared.keys():
            self._forget(gone)
        now = self._clock.monotonic()
        for account, members in sorted(shared.items()):
            known = self._regions.get(account)
            if known is None:
                known = self._regions[account] = self._begun(account, now)
            known.members = members
            self._hurry(known, now)
            for part, turn in known.turns.items():
                if turn.due <= now and (part == "types" or known.market.types):
                    self._begin(account, known, part)
        self._publish()

    @property
    def is_busy(self) -> bool:
        """Whether anything is being read."""
        return bool(self._tasks)

    def _begun(self, account: MarketAccount, now: float) -> _Region:
        bucket = TokenBucket(self._clock, PER_SECOND, BURST)
        turns: dict[Part, _Turn] = {part: _Turn(due=now) for part in EVERY_SECONDS}
        return _Region(market=RegionMarket(region=account.region), bucket=bucket, turns=turns)

    def _hurry(self, known: _Region, now: float) -> None:
        """Another question is not answered by what was read."""
        specs, types = known.specs, known.market.types
        if types is known.looked_at[0] and specs == known.looked_at[1]:
            return
        known.looked_at = types, specs
        families = {family for spec in specs for family in spec.families}
        wanted = tuple(reading.wanted_groups(types, specs))
        question = max(spec.target_count for spec in specs), wanted, tuple(sorted(families))
        if types and question != known.question:
            before, known.question = known.question, question
            if before and before[2] != question[2]:
                known.turns["types"].due = min(known.turns["types"].due, now)
            known.turns["scores"].due = min(known.turns["scores"].due, now)

    def _begin(self, account: MarketAccount, known: _Region, part: Part) -> None:
        if (account, part) not in self._tasks:
            task = asyncio.create_task(self._look(account, known, part), name=f"{part} of {account.region}")
            self._tasks[account, part] = task
            task.add_done_callback(lambda _: self._tasks.pop((account, part), None))

    async def _look(self, account: MarketAccount, known: _Region, part: Part) -> None:
        turn = known.turns[part]
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._read(known, part, await self._asked(account, known))
        except HeadroomError as problem:
            turn.problem = problem
        except TimeoutError:
            turn.problem = Unavailable(f"not finished within {LOOK_SECONDS:g}s")
        except Exception as problem:  # noqa: BLE001 - what was read last must not stand as new, whatever happened
            turn.problem = Unavailable(f"a bug in Headroom ({type(problem).__name__})")
        else:
            turn.problem = None
        turn.failures = turn.failures + 1 if turn.problem else 0
        turn.due = self._clock.monotonic() + self._pause(part, turn)
        if self._regions.get(account) is known:
            self._offer(known)

    def _pause(self, part: Part, turn: _Turn) -> float:
        stretch = self._rng.uniform(0.9, 1.1)
        if not turn.failures:
            return EVERY_SECONDS[part] * stretch
        return min(RETRY_SECONDS * float(1 << min(turn.failures - 1, 10)), LONGEST_SECONDS) * stretch

    async def _asked(self, account: MarketAccount, known: _Region) -> AwsMarket:
        keys = await self._keys(account, known) if account.secret else Keys({}, ambient=True)
        urls = {name: url for name in ("ec2", "pricing") if (url := self._places.endpoints.get(f"aws-{name}", ""))}
        return AwsMarket(account.region, keys, self._clients, known.bucket, urls)

    async def _keys(self, account: MarketAccount, known: _Region) -> Keys:
        """The keys of a Secret that at least one of these may use. The others are told why not."""
        url = self._places.endpoints.get("aws-ec2") or usual_url(account.region)
        secrets = SecretReader(self._secrets)
        refused: HeadroomError = Refused("nobody asks")
        found: Keys | None = None
        denied: dict[str, HeadroomError] = {}
        for each in known.members:
            try:
                secret = await secrets.read(account.secret)
                check_usable(secret, account.secret, Use(kind=KIND, name=each.name, url=url, field=FIELD))
                needed, more = KEYS["aws"]
                names = (*needed, *(key for key in more if key in secret))
                found = Keys({key: plain_value(secret, account.secret, key) for key in names})
            except HeadroomError as problem:
                refused = denied[each.name] = problem
        known.denied = denied
        if found is None:
            raise refused if isinstance(refused, Unavailable) else BadCredentials(str(refused))
        return found

    async def _read(self, known: _Region, part: Part, aws: AwsMarket) -> None:
        now, specs, market = self._clock.now(), known.specs, known.market
        if part == "types":
            await reading.read_types(market, aws, {family for spec in specs for family in spec.families})
        elif part == "spot":
            await reading.read_spot(market, aws, now)
        elif part == "on-demand":
            await reading.read_on_demand(market, aws, now)
        else:
            await reading.read_scores(market, aws, specs, now)

    # What came of it

    def _offer(self, known: _Region) -> None:
        known.offers = confirmed(known.offers, known.market.offers(self._clock.now()))
        self._publish(offers=True)

    def _publish(self, *, offers: bool = False) -> None:
        """Tell what is new."""
        feeds = {
            each.name: feed
            for known in self._regions.values()
            for each in known.members
            if (feed := self._feed(known, each.name)) is not None
        }
        is_news = feeds != self.feeds
        self.feeds = feeds if is_news else self.feeds
        if offers:
            merged: dict[str, Offer] = {}
            for _, known in sorted(self._regions.items(), reverse=True):
                merged |= known.offers  # those that the operator's own credentials see count before others
            is_news = is_news or merged != self.offers
            self.offers = merged if merged != self.offers else self.offers
        if is_news:
            self._tell(Topic.OFFERS, "")

    def _feed(self, known: _Region, name: str) -> OfferFeed | None:
        """How well the offers for a resource are known; None before anything is."""
        at = known.market.spot_at
        if (denied := known.denied.get(name)) is not None:
            return OfferFeed(pool=name, at=at, problem="Credentials", message=_sentence(str(denied)))
        for part, (word, text) in _TOLD.items():
            problem = known.turns[part].problem
            if problem is not None:
                credentials = isinstance(problem, BadCredentials)
                message = _sentence(f"{text.format(region=known.market.region)}: {problem}")
                return OfferFeed(pool=name, at=at, problem="Credentials" if credentials else word, message=message)
        return OfferFeed(pool=name, at=at) if at else None

    def _forget(self, account: MarketAccount) -> None:
        for part in EVERY_SECONDS:
            if (task := self._tasks.get((account, part))) is not None:
                task.cancel()
        del self._regions[account]
        self._publish(offers=True)

    async def stop(self) -> None:
        """Ask nobody any more, and forget what was known: it grows old."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for account in list(self._regions):
            self._forget(account)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
