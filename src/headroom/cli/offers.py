"""`headroom offers`: what GPU machines cost and how risky they are, of any regions side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from headroom.cli import output
from headroom.cli.options import Files, Form, MoreFiles, Now, Output, Recursive
from headroom.model.errors import HeadroomError, Misconfigured, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headroom.api.offers import LeftoverNodePoolSpec
    from headroom.core.offers import Quote
    from headroom.model.cloud_facts import Experience
    from headroom.model.world import World
    from headroom.runtime.settings import Settings

ROWS: Final = 20
"""Offers in a table, unless all are asked for."""
AT_ONCE: Final = 8
"""Regions that are read at a time."""
MOST_REGIONS: Final = 64
Regions = Annotated[
    list[str] | None,
    typer.Option("--region", "-r", metavar="REGION", help="A region, repeatable; by default those of the files."),
]
Families = Annotated[
    list[str] | None,
    typer.Option("--family", metavar="FAMILY", help="An instance family such as g5, repeatable; by default any."),
]
Everything = Annotated[bool, typer.Option("--all", help=f"All offers, not the best {ROWS}.")]


class Ranked(NamedTuple):
    """The offers of all regions for one spec, best first."""

    name: str
    """The LeftoverNodePool; empty if none was given."""
    quotes: list[Quote]
    passed_over: dict[str, dict[str, int]]
    """By region: how many offers were not ranked, by reason."""


def offers(
    files: Files = None,
    more: MoreFiles = None,
    recursive: Recursive = False,
    regions: Regions = None,
    families: Families = None,
    everything: Everything = False,
    now: Now = "",
    form: Output = Form.table,
) -> None:
    """Rank GPU offers of AWS by price and risk, of any regions side by side.

    It reads AWS with your own credentials, writes nothing, and needs no cluster. The spec of a LeftoverNodePool in a file sets the
    filters and the ranking, for its region or those of --region; with Offer documents in the files, AWS is not asked. With
    HEADROOM_LEDGER_URL set, it includes the launches and interruptions that the clusters of that ledger have recorded. Exit code
    1 if the files contain mistakes, or something could not be read.

    Example: headroom offers --region us-east-1 --region eu-west-1 --family g5

    Example: headroom offers -f docs/examples/cheapest/offers.yaml --now 2026-11-15T12:00:00Z
    """
    from headroom.cli import planning, worlds

    named = [*(files or []), *(more or [])]
    world, problems = (
        worlds.given(named, None, now, recursive=recursive) if named else worlds.documents_of([], worlds.moment(now))
    )
    given = f"reading {', '.join(map(str, named))}" if named else "reading the flags"
    specs = _specs(world, regions or [], families or [], given)
    unread: list[str] = []
    if not world.offers and specs:
        if now:
            raise Misconfigured(
                "reading the flags: --now is for Offer documents; AWS is asked for prices of the present"
            )
        world, unread = _live(world, specs)
    ranked = _ranked(world, specs)
    if form.is_data:
        shown = {"at": _text(world.now), "pools": [_wire(each, world) for each in ranked]}
        output.as_data(shown | {"problems": planning.wire(problems), "unread": unread}, form)
    else:
        planning.show_problems(problems)
        for number, each in enumerate(ranked):
            if number:
                output.line()
            _show(each, everything=everything)
        for sentence in unread:
            output.say(sentence)
    if problems or unread:
        raise typer.Exit(output.PROBLEMS)


# --- what is asked --------------------------------------------------------------------------------------------------------------

Specs = list[tuple[str, list["LeftoverNodePoolSpec"]]]
"""By LeftoverNodePool: its spec in each region."""


def _specs(world: World, regions: list[str], families: list[str], given: str) -> Specs:
    from msgspec import structs

    from headroom.api.offers import LeftoverNodePoolSpec
    from headroom.core.offers import KIND

    every = world.of_kind(KIND)
    pools = [(ref.name, found.spec) for ref, found in every if found.spec is not None]
    if not every:
        offered = sorted({each.region for each in world.offers.values() if each.region})
        known = regions or offered
        if not known:
            raise Misconfigured(
                f"{given}: name a region with --region, or give a LeftoverNodePool or Offers with --file"
            )
        if world.offers and (strange := [each for each in known if each not in offered]):
            raise Misconfigured(f"{given}: there is no Offer of region {strange[0]}; there are {', '.join(offered)}")
        pools = [("", LeftoverNodePoolSpec(region=known[0], node_class_name="any"))]
        regions = known
    if families:
        pools = [(name, structs.replace(spec, families=tuple(families))) for name, spec in pools]
    found = [
        (name, [structs.replace(spec, region=each) for each in dict.fromkeys(regions or [spec.region])])
        for name, spec in pools
    ]
    if len({spec.region for _, each in found for spec in each}) > MOST_REGIONS:
        raise Misconfigured(f"reading the flags: more than {MOST_REGIONS} regions; name fewer")
    return found


def _ranked(world: World, specs: Specs) -> list[Ranked]:
    from headroom.core.offers import market_of

    found = []
    for name, regions in specs:
        quotes: list[Quote] = []
        passed: dict[str, dict[str, int]] = {}
        for spec in regions:
            market = market_of(world, spec, ())
            quotes += [*market.quotes.values(), *market.fallback]
            passed[spec.region] = dict(market.passed_over)
        quotes.sort(key=lambda each: (each.rank, each.key))
        found.append(Ranked(name, quotes, passed))
    return found


# --- asking AWS -----------------------------------------------------------------------------------------------------------------


def _live(world: World, specs: Specs) -> tuple[World, list[str]]:
    """The world with what each region offers now, and what could not be read."""
    import asyncio

    from msgspec import structs

    from headroom.core.offers import with_zone_names
    from headroom.runtime.settings import load

    settings = load({})
    found, unread = asyncio.run(_read(_by_region(specs), settings))
    experience, problem = asyncio.run(_experience(settings.ledger_url, world.now))
    seen = structs.replace(world, offers=found, experience=with_zone_names(experience, found.values()))
    return seen, [*unread, problem] if problem else unread


async def _experience(url: str, now: int) -> tuple[list[Experience], str]:
    """What clusters that share a ledger saw in the last week, or why that is not known."""
    from headroom.adapters.ledger import open_ledger
    from headroom.model.machine_records import WEEK

    if not url:
        return [], ""
    ledger = open_ledger(url, read_only=True)
    try:
        return await ledger.experience(now - WEEK, now), ""
    except HeadroomError as problem:
        return [], f"The history of machines is unknown: {problem}"
    finally:
        await ledger.close()


def _by_region(specs: Specs) -> dict[str, list[LeftoverNodePoolSpec]]:
    found: dict[str, list[LeftoverNodePoolSpec]] = {}
    for _, regions in specs:
        for spec in regions:
            found.setdefault(spec.region, []).append(spec)
    return found


async def _read(regions: dict[str, list[LeftoverNodePoolSpec]], settings: Settings) -> tuple[dict[str, Any], list[str]]:
    import asyncio

    from headroom.adapters.clouds.aws_sdk import Clients
    from headroom.cli import progress

    clients = Clients(instance_metadata=settings.instance_metadata)
    free = asyncio.Semaphore(AT_ONCE)
    found: dict[str, Any] = {}
    unread: list[str] = []
    done = 0
    with progress.shown("reading", "regions", len(regions)) as told:

        async def one(region: str) -> None:
            nonlocal done
            async with free:
                try:
                    unread.extend(await _region(region, regions[region], clients, settings.cloud_endpoints, found))
                except HeadroomError as problem:
                    unread.append(f"{region} cannot be read: {problem}")
            done += 1
            told(done)

        await asyncio.gather(*map(one, regions))
    await clients.close()
    if not found:
        raise Refused(f"reading offers: {'; '.join(unread)}; check your AWS credentials and the region")
    return found, sorted(unread)


async def _region(
    region: str, specs: Sequence[LeftoverNodePoolSpec], clients: Any, endpoints: str, found: dict[str, Any]
) -> list[str]:
    """Add what a region offers; what else could not be read."""
    from headroom.adapters.clouds.aws_market import BURST, PER_SECOND, AwsMarket
    from headroom.adapters.clouds.bucket import TokenBucket
    from headroom.adapters.clouds.market import RegionMarket, read_all
    from headroom.adapters.clouds.providers import Keys
    from headroom.runtime.clock import RealClock
    from headroom.runtime.settings import pairs_of

    clock, given = RealClock(), pairs_of("cloud_endpoints", endpoints)
    urls = {name: given[f"aws-{name}"] for name in ("ec2", "pricing") if f"aws-{name}" in given}
    aws = AwsMarket(region, Keys({}, ambient=True), clients, TokenBucket(clock, PER_SECOND, BURST), urls)
    market = RegionMarket(region=region)
    problems = await read_all(market, aws, specs, clock.now())
    found |= market.offers(clock.now())
    return problems


# --- what is shown --------------------------------------------------------------------------------------------------------------


def _wire(ranked: Ranked, world: World) -> dict[str, Any]:
    from headroom.web.pages.parts import known

    return known(
        {
            "name": ranked.name,
            "offers": [_row(each, world) for each in ranked.quotes],
            "passedOver": {region: found for region, found in ranked.passed_over.items() if found},
        }
    )


def _row(quote: Quote, world: World) -> dict[str, Any]:
    from headroom.core.offers import dollars, share
    from headroom.web.pages.parts import known

    offer = quote.offer
    return known(
        {
            "region": offer.region,
            "zone": offer.zone,
            "zoneId": offer.zone_id,
            "instanceType": offer.instance_type,
            "capacityType": offer.capacity_type,
            "gpus": share(offer.gpus),
            "pricePerHour": dollars(quote.price),
            "costPerGpuHour": dollars(quote.cost),
            "score": offer.score,
            "interruptionsPerHour": share(quote.risk.interruptions),
            "failedLaunches": share(quote.risk.failed),
            "at": _text(offer.at if offer.at is not None else world.now),
        }
    )


def _text(moment: int) -> str:
    from headroom.model import times

    return times.text(moment - moment % times.SECOND)


def _show(ranked: Ranked, *, everything: bool) -> None:
    from headroom.core.offers import money, passed_over, percent, share

    if ranked.name:
        output.line(f"For LeftoverNodePool {ranked.name}:")
    shown = ranked.quotes if everything else ranked.quotes[:ROWS]
    rows = [
        (
            each.offer.instance_type,
            each.offer.zone or each.offer.zone_id,
            each.offer.region,
            each.offer.capacity_type,
            share(each.offer.gpus),
            money(each.price),
            money(each.cost),
            "" if each.offer.score is None else each.offer.score,
            share(each.risk.interruptions * 1000),
            percent(each.risk.failed),
        )
        for each in shown
    ]
    columns = ("TYPE", "ZONE", "REGION", "CAPACITY", "GPUS", "PRICE/H", "COST/GPU-H", "SCORE", "INT/1000H", "FAILED")
    if rows:
        output.as_table(columns, rows, texts=0)
    if len(shown) < len(ranked.quotes):
        output.line(f"and {output.counted(len(ranked.quotes) - len(shown), 'offer')} more; --all lists them")
    for region, reasons in ranked.passed_over.items():
        if reasons:
            output.line(f"Not ranked in {region}: {passed_over(reasons)}.")
    if not rows:
        output.line("There is no offer to rank.")
