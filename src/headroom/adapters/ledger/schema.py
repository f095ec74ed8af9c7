"""The tables, the steps from one version of them to the next and back, and the statements that both databases understand.

`MERGE` is `headroom.model.usage.merged` in SQL; a property test holds it to that.
"""

# ruff: noqa: S608  statements are put together from names of our own; values are always parameters

from __future__ import annotations

from typing import Final

from msgspec import Struct

from headroom.adapters.ledger import encoding
from headroom.adapters.ledger.encoding import COLUMNS
from headroom.model.errors import Refused
from headroom.model.usage import UNSEEN


class SchemaMigration(Struct, frozen=True, kw_only=True):
    """From one version to the next, and back."""

    up: tuple[str, ...]
    down: tuple[str, ...]


class Dialect(Struct, frozen=True, kw_only=True):
    """What the two databases spell differently."""

    number: str
    binary: str
    text: str
    """Compares byte by byte, as Python does."""
    clustered: str
    """Added to a table that is kept in the order of its key."""


SQLITE: Final = Dialect(number="INTEGER", binary="BLOB", text="TEXT", clustered=" WITHOUT ROWID")
POSTGRES: Final = Dialect(number="BIGINT", binary="BYTEA", text='TEXT COLLATE "C"', clustered="")


RETENTION_NUMBERS: Final = (
    "known_since", "own_window", "own_shorter", "own_since", "span_window", "span_shorter", "span_since",
    "looked_at", "prune_from",
)  # fmt: skip  # three rows that belong together


def steps(dialect: Dialect) -> tuple[SchemaMigration, ...]:
    """All steps; the first makes version 1 out of nothing."""
    number, binary, text, clustered = dialect.number, dialect.binary, dialect.text, dialect.clustered
    usage = f"""CREATE TABLE usage (
        cluster {binary} NOT NULL, day {number} NOT NULL, uid {binary} NOT NULL, start {number} NOT NULL,
        namespace {text} NOT NULL, pod {text} NOT NULL, created {number} NOT NULL, observed {number} NOT NULL,
        version {number} NOT NULL,
        earliest {number} NOT NULL, seen_until {number} NOT NULL, ended {number}, evidence {number} NOT NULL,
        gone_by {number}, labels {text} NOT NULL, amounts {text} NOT NULL, price {number}, changed {number} NOT NULL,
        PRIMARY KEY (cluster, day, uid, start)){clustered}"""
    history = f"""CREATE TABLE history (
        at {number} NOT NULL, id {binary} NOT NULL, cluster {binary} NOT NULL, resource {text} NOT NULL,
        reason {text} NOT NULL, message {text} NOT NULL, actions {text} NOT NULL, PRIMARY KEY (at, id)){clustered}"""
    first = SchemaMigration(
        up=(
            usage,
            "CREATE INDEX usage_changed ON usage (changed)",
            f"CREATE TABLE clusters (cluster {binary} NOT NULL PRIMARY KEY, complete_until {number} NOT NULL){clustered}",
            # Not the largest number in `usage`: forgetting that row must not give its number away a second time.
            f"CREATE TABLE counter (last {number} NOT NULL)",
            "INSERT INTO counter VALUES (0)",
        ),
        down=("DROP TABLE usage", "DROP TABLE clusters", "DROP TABLE counter"),
    )
    second = SchemaMigration(up=(history,), down=("DROP TABLE history",))
    numbers = ", ".join(f"{name} {number} NOT NULL" for name in RETENTION_NUMBERS)
    third = SchemaMigration(
        up=(
            f"CREATE TABLE retention (cluster {binary} NOT NULL PRIMARY KEY, {numbers}){clustered}",
            # Who was recorded before is known from its first row on, and nothing of it is forgotten before its leader looked.
            f"""INSERT INTO retention (cluster, {", ".join(RETENTION_NUMBERS)})
            SELECT cluster, min(observed), {", ".join("0" * (len(RETENTION_NUMBERS) - 1))} FROM (
                SELECT cluster, observed FROM usage UNION ALL SELECT cluster, complete_until FROM clusters) AS known
            GROUP BY cluster""",
            f"""CREATE TABLE claims (cluster {binary} NOT NULL, holder {text} NOT NULL, renewals {number} NOT NULL,
            at {number} NOT NULL, PRIMARY KEY (cluster, holder)){clustered}""",
        ),
        down=("DROP TABLE retention", "DROP TABLE claims"),
    )
    fourth = SchemaMigration(
        up=(
            f"""CREATE TABLE verdicts (cluster {binary} NOT NULL, budget {text} NOT NULL, holds {number} NOT NULL,
            since {number} NOT NULL, at {number} NOT NULL, PRIMARY KEY (cluster, budget)){clustered}""",
        ),
        down=("DROP TABLE verdicts",),
    )
    return first, second, third, fourth, _machines(dialect), _details(dialect)


def _machines(dialect: Dialect) -> SchemaMigration:
    number, text = dialect.number, dialect.text
    return SchemaMigration(
        up=(
            f"""CREATE TABLE machines (cluster {dialect.binary} NOT NULL, machine {text} NOT NULL,
            instance_type {text} NOT NULL, zone {text} NOT NULL, capacity_type {text} NOT NULL, began {number} NOT NULL,
            seen_until {number} NOT NULL, outcome {number} NOT NULL,
            PRIMARY KEY (cluster, machine, instance_type, zone, capacity_type)){dialect.clustered}""",
            "CREATE INDEX machines_seen ON machines (seen_until)",
        ),
        down=("DROP TABLE machines",),
    )


def _details(dialect: Dialect) -> SchemaMigration:
    """Rows from before have no details: nothing is known of them, as where they say nothing."""
    return SchemaMigration(
        up=(
            f"ALTER TABLE usage ADD COLUMN ending {dialect.number} NOT NULL DEFAULT 0",
            f"ALTER TABLE usage ADD COLUMN details {dialect.text} NOT NULL DEFAULT ''",
        ),
        down=("ALTER TABLE usage DROP COLUMN details", "ALTER TABLE usage DROP COLUMN ending"),
    )


LATEST: Final = len(steps(SQLITE))
WITH_DETAILS: Final = 6
"""The first version that has them."""
VERSION_TABLE: Final = "CREATE TABLE schema_version (version INTEGER NOT NULL)"
FIRST_VERSION: Final = "INSERT INTO schema_version VALUES (0)"


def way(dialect: Dialect, version: int, wanted: int) -> list[str]:
    """The statements that lead from one version to another, the new version written down last."""
    all_steps = steps(dialect)
    if wanted >= version:
        statements = [statement for step in all_steps[version:wanted] for statement in step.up]
    else:
        statements = [statement for step in reversed(all_steps[wanted:version]) for statement in step.down]
    return [*statements, f"UPDATE schema_version SET version = {wanted:d}"]


def read(version: int) -> str:
    """The columns to read of a version of the tables: an older one may be open for reading only."""
    return _READ if version >= WITH_DETAILS else _READ_WITHOUT


def check_version(version: int, place: str) -> None:
    """Refuse what a newer Headroom made."""
    if version > LATEST:
        raise Refused(
            f"opening the ledger {place}: it has schema version {version}, and this Headroom knows versions up to {LATEST}; "
            f"use the newer Headroom, or let it run `headroom ledger migrate --to-version {LATEST}` first"
        )


_SOURCED: Final = ("version", "observed", "labels", "amounts", "price", "namespace", "pod", "created")
"""What the row says that saw it better, in the order in which two are compared."""


def _precedence(table: str) -> str:
    """No price is smaller than any; everything else is never null."""
    is_change = f"{table}.observed <= {table}.start"
    special = {
        "version": f"CASE WHEN {is_change} THEN -{table}.version ELSE {table}.version END",
        "price": f"coalesce({table}.price, -1)",
    }
    names = [special.get(name, f"{table}.{name}") for name in _SOURCED]
    # One line for each label: the fewer there are, the less this is below zero.
    names.insert(_SOURCED.index("labels"), f"length(replace({table}.labels, '\n', '')) - length({table}.labels)")
    lines, unseen = f"('\n' || {table}.labels)", f"'\n{UNSEEN}\t'"
    is_unseen = f"replace({lines}, {unseen}, '') <> {lines}"
    first = f"CASE WHEN {is_unseen} THEN 1 ELSE 0 END, CASE WHEN {is_change} THEN 0 ELSE 1 END"
    return f"({first}, {', '.join(names)})"


_WINS: Final = f"{_precedence('excluded')} < {_precedence('usage')}"
_LARGER: Final = ("earliest", "seen_until", "evidence", "ending", "details")

MERGE: Final = f"""ON CONFLICT (cluster, day, uid, start) DO UPDATE SET
    {", ".join(f"{name} = CASE WHEN {_WINS} THEN excluded.{name} ELSE usage.{name} END" for name in _SOURCED)},
    {
    ", ".join(
        f"{name} = CASE WHEN excluded.{name} > usage.{name} THEN excluded.{name} ELSE usage.{name} END"
        for name in _LARGER
    )
},
    ended = CASE
        WHEN excluded.ended IS NULL THEN usage.ended
        WHEN usage.ended IS NULL OR excluded.evidence > usage.evidence THEN excluded.ended
        WHEN excluded.evidence = usage.evidence AND excluded.ended < usage.ended THEN excluded.ended
        ELSE usage.ended END,
    gone_by = CASE WHEN excluded.gone_by < usage.gone_by THEN excluded.gone_by
        ELSE coalesce(usage.gone_by, excluded.gone_by) END,
    changed = excluded.changed
WHERE {" OR ".join(f"excluded.{name} > usage.{name}" for name in _LARGER)}
    OR (excluded.ended IS NOT NULL AND (usage.ended IS NULL
        OR (excluded.evidence = usage.evidence AND excluded.ended < usage.ended)))
    OR excluded.gone_by < usage.gone_by OR (usage.gone_by IS NULL AND excluded.gone_by IS NOT NULL)
    OR {_WINS}"""
"""Two rows with one key become what `merged` says; a row that says nothing new changes nothing, its number included."""

HEARTBEAT: Final = "ON CONFLICT (cluster) DO UPDATE SET complete_until = excluded.complete_until"
"""The newest word counts, even if it is an earlier moment: only who leads speaks, and one whose clock was ahead can be corrected."""
RETAIN: Final = "ON CONFLICT (cluster) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in RETENTION_NUMBERS
)
RETENTION: Final = f"cluster, {', '.join(RETENTION_NUMBERS)}"
CLAIM: Final = "ON CONFLICT (cluster, holder) DO UPDATE SET renewals = claims.renewals + 1, at = excluded.at"
CLAIM_KEPT_MS: Final = 86_400_000
"""A claim that was not renewed for so long is forgotten; who is still there recreates it."""
PRUNED_AT_ONCE: Final = 2_000
"""Rows that one transaction forgets: short enough that no writer waits for long."""

ALL: Final = ", ".join(COLUMNS)
_READ: Final = ", ".join(encoding.READ)
_READ_WITHOUT: Final = _READ.replace("ending, details", "0 AS ending, '' AS details")
SURELY_OVER: Final = "coalesce(ended, gone_by)"
"""When a row is over for sure; what was found gone cannot reach beyond that, whenever it ended."""
INFO: Final = f"SELECT count(*), min(earliest), max(coalesce({SURELY_OVER}, seen_until)) FROM usage"
HISTORY: Final = "at, id, cluster, resource, reason, message, actions"
