"""`headroom ledger`: what is in the ledger, and how to back it up, restore, copy, migrate and prune it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headroom.cli.grouped_help import GroupedCommand
from headroom.cli.options import Form, Output

if TYPE_CHECKING:
    from headroom.adapters.ledger.info import Info
    from headroom.adapters.ledger.postgres import PostgresLedger
    from headroom.adapters.ledger.sqlite import SqliteLedger
    from headroom.model.retention import Retention

    AnyLedger = SqliteLedger | PostgresLedger

Result = TypeVar("Result")

HELP = """Maintain the ledger, which keeps usage.

Without --ledger-url and HEADROOM_LEDGER_URL it is ledger.db in the folder of HEADROOM_STATE_DIR.

Example: headroom ledger info --ledger-url sqlite:///var/lib/headroom/ledger.db
"""

app = typer.Typer(name="ledger", help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)

Url = Annotated[
    str | None,
    typer.Option(
        "--ledger-url",
        metavar="URL",
        help="A path, sqlite:///PATH or postgresql://...; else HEADROOM_LEDGER_URL, else ledger.db in HEADROOM_STATE_DIR.",
    ),
]


@app.command(cls=GroupedCommand)
def info(ledger_url: Url = None, output_form: Output = Form.table) -> None:
    """Show the size of the ledger, and how fresh it is.

    It shows the period that the ledger covers, and the time up to which each cluster's view is complete.

    Example: headroom ledger info --ledger-url sqlite:///var/lib/headroom/ledger.db
    """
    import msgspec

    from headroom.cli import output
    from headroom.model import retention, times
    from headroom.model.usage import DAY
    from headroom.runtime.clock import RealClock

    found, kept = _with(_url(ledger_url), _info, read_only=True)
    if output_form.is_data:
        output.as_data(msgspec.to_builtins(found), output_form)
        return
    told = {
        "ledger": found.place,
        "schema version": found.version,
        "rows": f"{found.rows:,}",
        "size": f"{found.size / 1e6:,.1f} MB",
        "oldest": "none" if found.oldest is None else times.text(found.oldest),
        "newest": "none" if found.newest is None else times.text(found.newest),
    }
    for cluster, until in sorted(found.clusters.items()):
        age = output.spoken(max(0, RealClock().now() - until))
        days = retention.kept_for(kept, cluster) // DAY
        more = f"; known since {times.text(kept[cluster].known_since)}, kept for {days} days" if cluster in kept else ""
        told[f"cluster {cluster}"] = f"complete until {times.text(until)}, {age} ago{more}"
    output.as_fields(told.items())


async def _info(ledger: AnyLedger) -> tuple[Info, dict[str, Retention]]:
    return await ledger.info(), await ledger.retentions()


@app.command(cls=GroupedCommand)
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Must not exist.")], ledger_url: Url = None
) -> None:
    """Copy the whole ledger into one SQLite file.

    The operator may keep running.

    Example: headroom ledger backup --ledger-url sqlite:///var/lib/headroom/ledger.db monday.db
    """
    from headroom.adapters.ledger import copying
    from headroom.cli import output, progress

    url = _url(ledger_url)
    with progress.shown("backing up", "rows") as told:
        _with(url, lambda ledger: copying.backup(ledger, file, told), read_only=True)
    output.say(f"wrote {file.stat().st_size / 1e6:,.1f} MB to {file}")


@app.command(cls=GroupedCommand)
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that backup wrote.")], ledger_url: Url = None
) -> None:
    """Merge a backup into the ledger. It can be repeated; better data in the ledger stay.

    A SQLite ledger must not be in use: stop the operator first.

    Example: headroom ledger restore --ledger-url sqlite:///var/lib/headroom/ledger.db monday.db
    """
    _copy(str(file.absolute()), _url(ledger_url))


@app.command(cls=GroupedCommand)
def copy(
    source: Annotated[str, typer.Option("--from", metavar="URL", help="The ledger to read; it may be in use.")],
    target: Annotated[str, typer.Option("--to", metavar="URL", help="The ledger to merge into.")],
) -> None:
    """Merge one ledger into another.

    They may be of different kinds.

    Example: headroom ledger copy --from sqlite:///var/lib/headroom/ledger.db --to postgresql://headroom@db/usage
    """
    from headroom.runtime.settings import refuse_password

    for url, flag in ((source, "--from"), (target, "--to")):
        refuse_password(url, flag, "set PGPASSWORD instead")
    _copy(source, target)


@app.command(cls=GroupedCommand)
def migrate(
    to_version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The target version; the newest by default.")
    ] = None,
    ledger_url: Url = None,
) -> None:
    """Migrate the tables to another version.

    The default is the newest version; use an older one before a downgrade of Headroom. Usage rows survive both ways. Version 1 has no history, so migrating to it deletes the history.

    Example: headroom ledger migrate --ledger-url postgresql://headroom@db/usage --to-version 1
    """
    from headroom.adapters.ledger import schema
    from headroom.cli import output
    from headroom.model.errors import Misconfigured

    wanted = schema.LATEST if to_version is None else to_version
    if wanted > schema.LATEST:
        raise Misconfigured(f"migrating the ledger: --to-version must be at most {schema.LATEST}, not {wanted}")
    _with(_existing(_url(ledger_url)), lambda ledger: ledger.migrate(wanted))
    output.say(f"the ledger has schema version {wanted}")


@app.command(cls=GroupedCommand)
def history(
    since: Annotated[str, typer.Option(metavar="DURATION", help="How far back, such as 30m, 24h or 7d.")] = "24h",
    limit: Annotated[int, typer.Option(min=1, help="How many entries at most.")] = 100,
    ledger_url: Url = None,
    output_form: Output = Form.table,
) -> None:
    """List decisions, newest first.

    Example: headroom ledger history --since 2h
    """
    import msgspec

    from headroom.cli import output
    from headroom.model import times
    from headroom.model.errors import Misconfigured
    from headroom.runtime.clock import RealClock

    length = times.duration(since)
    if length is None:
        raise Misconfigured(f"reading the history: --since must be a duration such as 30m, 24h or 7d, not {since!r}")
    begin = RealClock().now() - length
    found = _with(_url(ledger_url), lambda ledger: ledger.history(begin, limit), read_only=True)
    if output_form.is_data:
        told = [msgspec.to_builtins(each) | {"actions": msgspec.json.decode(each.actions)} for each in found]
        output.as_data(told, output_form)
    elif found:
        rows = [(times.text(each.at), each.resource, each.reason, each.message) for each in found]
        output.as_table(("AT", "RESOURCE", "REASON", "MESSAGE"), rows)
    else:
        output.line(f"No decisions in the last {since}.")


@app.command(cls=GroupedCommand)
def prune(
    before: Annotated[str, typer.Option(metavar="TIME", help="Such as 2026-01-31T00:00:00Z.")],
    cluster: Annotated[str, typer.Option(metavar="ID", help="Prune this cluster only; by default all.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Also delete rows that budgets still need.")] = False,
    ledger_url: Url = None,
) -> None:
    """Delete usage and history older than a given time.

    It deletes usage that ended, and history that was written, before that time. The operator prunes by itself. Without --force the command refuses to delete rows that the windows of budgets still need, counted back from the last heartbeat of their cluster.

    Example: headroom ledger prune --ledger-url postgresql://headroom@db/usage --before 2026-01-31T00:00:00Z
    """
    from headroom.cli import output
    from headroom.model import times
    from headroom.model.errors import Misconfigured
    from headroom.runtime.clock import RealClock

    moment, now = times.moment(before), RealClock().now()
    if moment is None:
        raise Misconfigured(f"pruning the ledger: --before must be a time such as 2026-01-31T00:00:00Z, not {before!r}")
    if moment > now:
        raise Misconfigured(f"pruning the ledger: --before {before} is in the future, and would delete everything")
    gone = _with(
        _existing(_url(ledger_url)), lambda ledger: _forgotten(ledger, cluster, moment, None if force else now)
    )
    output.say(f"forgot {output.counted(f'{gone:,}', 'row')}")


async def _forgotten(ledger: AnyLedger, cluster: str, before: int, now: int | None) -> int:
    """Prune one cluster or all; with a `now`, nothing that is still needed."""
    from msgspec import structs

    from headroom.model import retention, times
    from headroom.model.errors import Refused

    kept, beats = await ledger.retentions(), await ledger.heartbeats()
    names = [cluster] if cluster else sorted({*kept, *beats})
    for name in names if now is not None else ():
        # The last word of its operator, whose clock was compared with the API server's: this machine's may be ahead.
        heard = min(now or 0, max(beats.get(name, 0), kept[name].looked_at if name in kept else 0))
        needed = heard - retention.kept_for(kept, name)
        if not heard:
            raise Refused(f"pruning the ledger: no cluster {name} in it; `headroom ledger info` lists the known ones")
        if before > needed:
            raise Refused(
                f"pruning the ledger: budgets of cluster {name}, last heard of at {times.text(heard)}, need everything "
                f"since {times.text(needed)}; give an earlier --before, another --cluster, or --force"
            )
    gone = 0
    for name in names:
        if name in kept and before > kept[name].known_since:
            await ledger.retain(structs.replace(kept[name], known_since=before))
        while part := await ledger.prune(name, before):
            gone += part
    return gone


def _url(given: str | None) -> str:
    from headroom.model.errors import Misconfigured
    from headroom.runtime.settings import load

    settings = load({"ledger_url": given})
    if settings.ledger_url:
        return settings.ledger_url
    usual = Path(settings.state_dir).expanduser() / "ledger.db"
    if not usual.exists():
        raise Misconfigured(
            f"opening the ledger: there is none at {usual}; give --ledger-url or set HEADROOM_LEDGER_URL"
        )
    return str(usual)


def _existing(url: str) -> str:
    """The URL of a ledger that is there: one that is made by a slip of the pen would be taken for the real one."""
    from headroom.model.errors import Misconfigured

    path = Path(url.removeprefix("sqlite://"))
    if not url.startswith(("postgres://", "postgresql://")) and not path.exists():
        raise Misconfigured(f"opening the ledger {path}: no such file; check the path")
    return url


def _with(url: str, work: Callable[[AnyLedger], Awaitable[Result]], *, read_only: bool = False) -> Result:
    """Open the ledger, do the work, close it."""
    import asyncio

    from headroom.adapters.ledger import open_ledger

    async def opened() -> Result:
        ledger = open_ledger(url, read_only=read_only)
        try:
            return await work(ledger)
        finally:
            await ledger.close()

    return asyncio.run(opened())


def _copy(source: str, target: str) -> None:
    from headroom.adapters.ledger import copying, open_ledger
    from headroom.cli import output, progress

    with progress.shown("copying", "rows") as told:

        async def work(into: AnyLedger) -> copying.Copied:
            ledger = open_ledger(source, read_only=True)
            try:
                return await copying.copy(ledger, into, told)
            finally:
                await ledger.close()

        done = _with(target, work)
    output.say(
        f"read {output.counted(f'{done.rows:,}', 'row')}; {done.new:,} were new or more complete than in the ledger"
    )
