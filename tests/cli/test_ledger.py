"""`headroom ledger`: every command on real files and a real PostgreSQL, and what it says when it cannot."""

import asyncio
import json
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from headroom.adapters.ledger import open_ledger
from headroom.cli import ledger as command
from headroom.model import times
from headroom.model.history import Entry
from headroom.model.retention import Reach, Retention
from headroom.model.usage import DAY, Heartbeat
from tests.adapters.ledger.rows import CLUSTER, TODAY, everything, row
from tests.cli.conftest import Headroom
from tests.postgres import Postgres


def fill(url: str, numbers: range) -> None:
    async def work() -> None:
        ledger = open_ledger(url)
        rows = [row(number, ended=TODAY + number, evidence=3) for number in numbers]
        await ledger.write(rows, Heartbeat(cluster=CLUSTER, complete_until=TODAY))
        await ledger.close()

    asyncio.run(work())


def count(url: str) -> int:
    async def work() -> int:
        ledger = open_ledger(url)
        found = await everything(ledger)
        await ledger.close()
        return len(found)

    return asyncio.run(work())


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/ledger.db"
    server: Postgres = request.getfixturevalue("postgres")
    whole = urlsplit(server.new_database())
    # No argument may have it.
    monkeypatch.setenv("PGPASSWORD", unquote(whole.password or ""))
    return whole._replace(netloc=f"{whole.username}@{whole.hostname}:{whole.port}").geturl()


@pytest.mark.parametrize("name", [each.callback.__name__ for each in command.app.registered_commands if each.callback])
def test_every_command_explains_itself_with_an_example(headroom: Headroom, name: str) -> None:
    done = headroom("ledger", name, "--help")
    assert done.code == 0
    assert f"\n  headroom ledger {name}" in done.out


def test_info_tells_what_is_there(headroom: Headroom, url: str) -> None:
    fill(url, range(1, 4))
    done = headroom("ledger", "info", "--ledger-url", url)
    assert done.code == 0
    said = " ".join(done.out.split())
    assert "rows 3 " in said
    assert "schema version 6 " in said
    assert "oldest 2024-10-04T00:00:01Z newest 2024-10-04T00:00:00.003Z" in said
    assert f"cluster {CLUSTER} complete until 2024-10-04T00:00:00Z, " in said
    found = json.loads(headroom("ledger", "info", "--ledger-url", url, "-o", "json").out)
    assert (found["rows"], found["clusters"]) == (3, {CLUSTER: TODAY})
    assert found["size"] > 0
    assert "s3cret" not in done.out + done.err + json.dumps(found)


def test_what_budgets_need_is_pruned_by_force_only(headroom: Headroom, url: str) -> None:
    fill(url, range(1, 4))

    async def keep() -> None:
        ledger = open_ledger(url)
        kept = Retention(cluster=CLUSTER, known_since=TODAY, own=Reach(window=9000 * DAY))
        await ledger.retain(kept)
        await ledger.close()

    asyncio.run(keep())
    said = " ".join(headroom("ledger", "info", "--ledger-url", url).out.split())
    assert "; known since 2024-10-04T00:00:00Z, kept for 18000 days" in said
    arguments = ("ledger", "prune", "--before", "2024-10-05T00:00:00Z", "--ledger-url", url)
    done = headroom(*arguments)
    assert done.code == 2
    assert f"budgets of cluster {CLUSTER}, last heard of at 2024-10-04T00:00:00Z, need everything since " in done.err
    assert "no cluster another in it; `headroom ledger info` lists" in headroom(*arguments, "--cluster", "another").err
    assert count(url) == 3
    assert headroom(*arguments, "--force").err == "forgot 3 rows\n"


def test_pruning_believes_the_operator_and_not_the_clock_of_a_workstation(headroom: Headroom, url: str) -> None:
    """The cluster was last heard of two years ago by the clock of this machine, which may as well be two years ahead."""
    fill(url, range(1, 4))
    needed = TODAY - 35 * DAY
    arguments = ("ledger", "prune", "--ledger-url", url, "--before")
    assert headroom(*arguments, times.text(needed)).err == "forgot 0 rows\n"
    done = headroom(*arguments, times.text(needed + 1000))
    assert (done.code, count(url)) == (2, 3)
    assert f"need everything since {times.text(needed)}; give an earlier --before" in done.err


def test_a_backup_restores_what_was_lost_and_keeps_what_is_newer(headroom: Headroom, url: str, tmp_path: Path) -> None:
    file = tmp_path / "monday.db"
    fill(url, range(1, 11))
    assert headroom("ledger", "backup", file, "--ledger-url", url).code == 0
    assert count(str(file)) == 10
    assert (
        headroom("ledger", "prune", "--before", "2024-10-04T00:00:00.006Z", "--force", "--ledger-url", url).err
        == "forgot 5 rows\n"
    )
    fill(url, range(11, 13))
    for new in (5, 0):
        done = headroom("ledger", "restore", file, "--ledger-url", url)
        assert (done.code, done.err) == (0, f"read 10 rows; {new} were new or more complete than in the ledger\n")
    assert count(url) == 12


def test_copies_go_both_ways(headroom: Headroom, url: str, tmp_path: Path) -> None:
    other = f"{tmp_path}/other.db"
    fill(url, range(1, 6))
    assert headroom("ledger", "copy", "--from", url, "--to", other).err.startswith("read 5 rows; 5 were new")
    fill(other, range(6, 8))
    assert headroom("ledger", "copy", "--from", other, "--to", url).err.startswith("read 7 rows; 2 were new")
    assert count(url) == 7


def test_migrate_goes_down_and_up(headroom: Headroom, url: str) -> None:
    fill(url, range(1, 6))
    for version in (1, 2, 3, 4, 5, 1):
        done = headroom("ledger", "migrate", "--to-version", version, "--ledger-url", url)
        assert (done.code, done.err) == (0, f"the ledger has schema version {version}\n")
        assert json.loads(headroom("ledger", "info", "-o", "json", "--ledger-url", url).out)["version"] == version
    assert headroom("ledger", "migrate", "--ledger-url", url).err == "the ledger has schema version 6\n"
    assert headroom("ledger", "migrate", "--to-version", 9, "--ledger-url", url).code == 2
    assert count(url) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["info"], "give --ledger-url or set HEADROOM_LEDGER_URL"),
        (["info", "--ledger-url", "mysql://u@h/d"], "its URL must be a path, sqlite:///PATH"),
        (["info", "--ledger-url", "postgresql://u:hush@h/d"], "--ledger-url has a password in it"),
        (["copy", "--from", "a.db", "--to", "postgresql://u:hush@h/d"], "--to has a password in it"),
        (["copy", "--from", "postgresql://h/d?password=hush", "--to", "a.db"], "--from has a password in it"),
        (["info", "--ledger-url", "none.db"], "no such file"),
        (["prune", "--before", "2026-01-01T00:00:00Z", "--ledger-url", "none.db"], "no such file"),
        (["prune", "--before", "2999-01-01T00:00:00Z", "--ledger-url", "none.db"], "is in the future"),
        (["migrate", "--ledger-url", "none.db"], "no such file"),
        (["prune", "--before", "yesterday", "--ledger-url", "none.db"], "--before must be a time such as"),
        (["restore", "none.db", "--ledger-url", "new.db"], "no such file"),
        (["backup", "copy.db", "--ledger-url", "postgresql://u@127.0.0.1:1/d"], "check the server"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    headroom: Headroom, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADROOM_STATE_DIR", str(tmp_path / "state"))
    done = headroom("ledger", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert "hush" not in done.err
    assert not (tmp_path / "copy.db").exists()


def test_the_url_may_come_from_the_environment(
    headroom: Headroom, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fill(f"{tmp_path}/ledger.db", range(1, 3))
    monkeypatch.setenv("HEADROOM_LEDGER_URL", f"sqlite://{tmp_path}/ledger.db")
    assert "rows 2 " in " ".join(headroom("ledger", "info").out.split())


def test_without_a_url_it_is_the_operators_own_file(
    headroom: Headroom, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fill(f"{tmp_path}/ledger.db", range(1, 4))
    monkeypatch.setenv("HEADROOM_STATE_DIR", str(tmp_path))
    assert "rows 3 " in " ".join(headroom("ledger", "info").out.split())


def test_the_history_is_listed_newest_first(headroom: Headroom, tmp_path: Path) -> None:
    url, now = f"{tmp_path}/ledger.db", int(time.time() * 1000)
    said = [("old", 48 * 3_600_000), ("first", 60_000), ("second", 30_000)]
    entries = [
        Entry(cluster="c", at=now - ago, resource="GPUWorkloadBudget/lab/a", reason=word, message="why")
        for word, ago in said
    ]

    async def note() -> None:
        ledger = open_ledger(url)
        await ledger.note(entries)
        await ledger.close()

    asyncio.run(note())
    table = headroom("ledger", "history", "--ledger-url", url).out
    assert table.index("second") < table.index("first")
    assert "old" not in table
    found = json.loads(headroom("ledger", "history", "--since", "3d", "-o", "json", "--ledger-url", url).out)
    assert [each["reason"] for each in found] == ["second", "first", "old"]
    assert found[0]["actions"] == []
    empty = headroom("ledger", "history", "--since", "1s", "--ledger-url", url)
    assert empty.out == "No decisions in the last 1s.\n"
    assert "--since must be a duration" in headroom("ledger", "history", "--since", "x", "--ledger-url", url).err
