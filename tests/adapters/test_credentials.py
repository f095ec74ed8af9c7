"""Credentials in files: read again when they change, and left as they were while they cannot be read."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headroom.adapters.kube.config import ClientConfig, ExecPlugin, Pem, load
from headroom.adapters.kube.credentials import Credentials, RequestCredentials
from headroom.model import times
from headroom.model.errors import HeadroomError, Misconfigured, Unavailable
from tests.certificates import Authority

SERVER = "https://127.0.0.1:1"


class Clock:
    """Goes on only when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def now(self) -> int:
        return round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Files:
    """A client certificate, its key and an authority in files, and credentials that are made from them."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.certificate, self.key = self.authority.client("me", [])
        self.clock = Clock()
        self.config = ClientConfig(
            source="a test",
            server=SERVER,
            authority=Pem("the authority", file=self.authority.file),
            certificate=Pem("the certificate", file=self.certificate),
            key=Pem("the key", file=self.key),
        )
        self.credentials = Credentials(self.config, self.clock)

    async def later(self, seconds: float = 1.0) -> RequestCredentials:
        self.clock.seconds += seconds
        return await self.credentials.current()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def test_files_that_stay_as_they_are_give_the_same_access_for_ever(files: Files) -> None:
    first = await files.credentials.current()
    for seconds in (0.1, 1, 59, 61, 3600):
        assert await files.later(seconds) == first  # the same TLS context, or no connection would be used again
    assert await files.credentials.renewed(first) is None


async def test_a_certificate_that_is_renewed_in_place_is_used_within_a_second(files: Files) -> None:
    before = await files.credentials.current()
    files.authority.client("me", [])
    after = await files.later()
    assert after.certificate == (files.certificate.read_bytes(), files.key.read_bytes())
    assert before.certificate != after.certificate
    assert before.tls is not after.tls
    assert await files.later() == after


async def test_a_refusal_reads_files_at_once(files: Files) -> None:
    before = await files.credentials.current()
    files.authority.client("me", [])
    after = await files.credentials.renewed(before)
    assert after is not None
    assert after.certificate == (files.certificate.read_bytes(), files.key.read_bytes())
    assert await files.credentials.renewed(before) == after  # many are refused at the same time
    assert await files.credentials.renewed(after) is None


@pytest.mark.parametrize(
    "spoil", [lambda file: file.unlink(), lambda file: file.write_bytes(b"")], ids=["gone", "empty"]
)
@pytest.mark.parametrize("which", ["certificate", "key", "authority"])
async def test_files_that_are_just_being_written_leave_everything_as_it_was(
    files: Files, which: str, spoil: Callable[[Path], Any]
) -> None:
    before = await files.credentials.current()
    file = {"certificate": files.certificate, "key": files.key, "authority": files.authority.file}[which]
    content = file.read_bytes()
    spoil(file)
    assert await files.later() == before
    assert which in files.credentials.problem
    assert await files.credentials.renewed(before) is None
    file.write_bytes(content)
    assert await files.later() == before
    assert files.credentials.problem == ""


async def test_a_certificate_beside_the_key_of_the_one_before_waits_for_its_own(files: Files) -> None:
    before, old_key = await files.credentials.current(), files.key.read_bytes()
    files.authority.client("me", [])
    new_key = files.key.read_bytes()
    files.key.write_bytes(old_key)
    assert await files.later() == before
    assert "not a PEM certificate with its key" in files.credentials.problem
    files.key.write_bytes(new_key)
    assert (await files.later()).certificate == (files.certificate.read_bytes(), new_key)


async def test_another_authority_is_trusted_as_soon_as_it_is_there(files: Files, tmp_path: Path) -> None:
    before = await files.credentials.current()
    (tmp_path / "other").mkdir()
    files.authority.file.write_bytes(Authority(tmp_path / "other").file.read_bytes())
    after = await files.later()
    assert before.tls is not after.tls
    files.credentials.forget_tls()
    assert (await files.credentials.current()).tls is not after.tls


# --- tokens ------------------------------------------------------------------------------------------------------------------


def holding(file: Path) -> tuple[Credentials, Clock]:
    clock = Clock()
    return Credentials(ClientConfig(source="a test", server="http://x", token_file=file), clock), clock


async def test_a_token_is_renewed_as_kubelets_do_it(tmp_path: Path) -> None:
    """By another target of a link in the middle of the path; the file itself is another one then."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(f"token-{name}")
    (tmp_path / "data").symlink_to("one")
    credentials, clock = holding(tmp_path / "data" / "token")
    assert (await credentials.current()).token == "token-one"
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(tmp_path / "data")
    clock.seconds += 1
    assert (await credentials.current()).token == "token-two"


async def test_a_token_file_that_is_empty_is_none(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    credentials, clock = holding(file)
    assert (await credentials.current()).token == "one"
    file.write_text("\n")
    clock.seconds += 1
    assert (await credentials.current()).token == "one"
    assert "it is empty" in credentials.problem
    with pytest.raises(Misconfigured, match="it is empty"):
        await holding(file)[0].current()


# --- kubeconfig files ----------------------------------------------------------------------------------------------------------


def write_kubeconfig(file: Path, server: str = SERVER, **user: Any) -> None:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(document))


async def test_a_kubeconfig_with_credentials_in_it_is_read_again_when_it_is_written_anew(tmp_path: Path) -> None:
    file, authority, clock = tmp_path / "config", Authority(tmp_path), Clock()

    def data() -> dict[str, str]:
        pair = zip(("client-certificate-data", "client-key-data"), authority.client("me", []), strict=True)
        return {name: base64.b64encode(each.read_bytes()).decode() for name, each in pair}

    write_kubeconfig(file, **data())
    credentials = Credentials(load(str(file)), clock)
    before = await credentials.current()
    write_kubeconfig(file, **data())
    clock.seconds += 1
    after = await credentials.current()
    assert after.certificate != before.certificate
    write_kubeconfig(file, token="abc")
    clock.seconds += 1
    assert (await credentials.current()).token == "abc"
    assert (await credentials.current()).certificate == (b"", b"")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda file: write_kubeconfig(file, "https://elsewhere", token="new"), "it now names another server"),
        (lambda file: file.write_text("{"), "it is not YAML"),
        (lambda file: file.unlink(), "no such file"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_changes_nothing(
    tmp_path: Path, spoil: Callable[[Path], Any], words: str
) -> None:
    file, clock = tmp_path / "config", Clock()
    write_kubeconfig(file, token="old")
    credentials = Credentials(load(str(file)), clock)
    assert (await credentials.current()).token == "old"
    spoil(file)
    clock.seconds += 1
    assert (await credentials.current()).token == "old"
    assert words in credentials.problem


# --- plugins -------------------------------------------------------------------------------------------------------------------


class Login:
    """A plugin that counts how often it was run, and prints that as its token."""

    def __init__(self, folder: Path, script: str = "", lasts: int = 300) -> None:
        self.runs, self.clock, self._file = folder / "runs", Clock(), folder / "login"
        self._lasts = lasts
        self.write(script)
        plugin = ExecPlugin("exec plugin login", "client.authentication.k8s.io/v1", str(self._file))
        self.credentials = Credentials(ClientConfig(source="a test", server="http://x", plugin=plugin), self.clock)

    def write(self, script: str) -> None:
        until = times.text(self.clock.now() + self._lasts * 1000)
        status = {"token": "t$N", "expirationTimestamp": until}
        credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        count = f"echo run >> {self.runs}; N=$(wc -l < {self.runs})"
        self._file.write_text(f"#!/bin/sh\n{count}\n{script}\ncat <<EOF\n{json.dumps(credential)}\nEOF\n")
        self._file.chmod(0o755)

    @property
    def count(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0

    async def token(self, seconds: float = 0.0) -> str:
        self.clock.seconds += seconds
        return (await self.credentials.current()).token

    async def until_run(self, count: int) -> None:
        if (running := self.credentials._login._running) is not None:
            await running
        assert self.count == count


async def test_a_plugin_is_run_again_ahead_of_its_expiry_and_nobody_waits_for_it(tmp_path: Path) -> None:
    login = Login(tmp_path)
    assert [await login.token() for _ in range(3)] == ["t1"] * 3
    assert await login.token(200) == "t1"
    assert login.count == 1
    login.write("")
    assert await login.token(50) == "t1"  # the last minute has begun
    await login.until_run(2)
    assert await login.token() == "t2"


async def test_a_request_that_gives_up_waiting_does_not_end_the_plugin(tmp_path: Path) -> None:
    """A lease is not waited for as long as a slow plugin takes; each try would begin at the beginning, and the lease be lost."""
    login = Login(tmp_path, f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await login.token()
    (tmp_path / "go").touch()
    assert await login.token() == "t1"
    assert login.count == 1


async def test_a_plugin_that_fails_is_not_run_for_every_request(tmp_path: Path) -> None:
    login = Login(tmp_path, "exit 3")
    for seconds, runs in ((0, 1), (1, 1), (1, 1), (5, 2)):
        with pytest.raises(Unavailable, match="it exited with 3"):
            await login.token(seconds)
        assert login.count == runs
    login.write("")
    assert await login.token(5) == "t3"


async def test_what_a_plugin_issued_is_used_to_its_end_though_it_cannot_be_renewed(tmp_path: Path) -> None:
    login = Login(tmp_path)
    assert await login.token() == "t1"
    login.write("exit 3")
    assert await login.token(250) == "t1"
    await login.until_run(2)
    assert await login.token(40) == "t1"
    await login.until_run(3)
    with pytest.raises(HeadroomError, match="it exited with 3"):
        await login.token(20)
