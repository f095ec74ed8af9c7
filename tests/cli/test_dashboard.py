"""`headroom dashboard --address`: an operator that is reached directly, and every way in which something else is there."""

import json
import os
import re
import signal
import ssl
import stat
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.cli.conftest import Headroom
from tests.control_plane import wait_until
from tests.processes import free_ports

TOKEN = "a-token-that-nobody-may-see"


class Operator(ThreadingHTTPServer):
    """Answers every request alike."""

    daemon_threads = True

    def __init__(self, authority: Authority) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(*authority.server("operator"))
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.answer = (200, b"{}")
        self.seen: list[str] = []

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """A client that does not trust us is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Operator

    def do_GET(self) -> None:
        self.server.seen.append(f"{self.path} {self.headers['Authorization']}")
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def operator(authority: Authority) -> Iterator[Operator]:
    with Operator(authority) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(document))
    return file


@pytest.fixture
def to(operator: Operator, authority: Authority, kubeconfig: Path) -> list[str]:
    flags = ["--address", operator.url, "--certificate-authority", str(authority.file)]
    return ["dashboard", "--no-open", "--kubeconfig", str(kubeconfig), *flags]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            (404, b"nothing"),
            "the operator is of an older version without a dashboard; update it, or use headroom status",
        ),
        ((401, b'{"problem": "Who are you?"}'), "it does not accept your credentials; kubeconfig "),
        ((403, b'{"problem": "ada may see nothing; bind them."}'), "dashboard: ada may see nothing; bind them\n"),
        ((403, b"<html>go away"), "something else answers there, with status 403; check --address"),
    ],
)
def test_an_operator_that_says_no_is_one_sentence(
    headroom: Headroom, operator: Operator, to: list[str], answer: tuple[int, bytes], sentence: str
) -> None:
    operator.answer = answer
    done = headroom(*to)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("headroom: asking the operator for its dashboard: ")
    assert sentence in done.err
    assert TOKEN not in done.err
    assert operator.seen == [f"/api/overview Bearer {TOKEN}"]


def test_an_operator_that_cannot_be_verified_is_not_shown_the_token(
    headroom: Headroom, operator: Operator, to: list[str]
) -> None:
    done = headroom(*to[:-2])
    assert done.code == 2
    assert done.err.endswith("give the authority that signed it with --certificate-authority\n")
    assert operator.seen == []


@pytest.mark.parametrize("address", ["http://127.0.0.1:8443", "127.0.0.1:8443", "https://", "x"])
def test_only_https_addresses_are_taken(headroom: Headroom, kubeconfig: Path, address: str) -> None:
    done = headroom("dashboard", "--kubeconfig", kubeconfig, "--address", address)
    assert done.code == 2
    assert done.err == (f"headroom: reading --address: it must be like https://headroom.example.com, not {address!r}\n")


def test_nobody_there_and_no_kubeconfig_are_one_sentence(headroom: Headroom, kubeconfig: Path, tmp_path: Path) -> None:
    [port] = free_ports(1)
    done = headroom("dashboard", "--kubeconfig", kubeconfig, "--address", f"https://127.0.0.1:{port}")
    assert (done.code, f"reaching the operator at https://127.0.0.1:{port}: " in done.err) == (2, True)
    done = headroom("dashboard", "--kubeconfig", kubeconfig)
    assert (done.code, "cannot reach https://127.0.0.1:1" in done.err) == (2, True)
    done = headroom("dashboard", "--kubeconfig", tmp_path / "none")
    assert (done.code, "no such file; check the path" in done.err) == (2, True)
    done = headroom("dashboard", "--kubeconfig", kubeconfig, "--certificate-authority", tmp_path / "none")
    assert (done.code, "none" in done.err) == (2, True)


def test_a_taken_port_is_one_sentence(headroom: Headroom, operator: Operator, to: list[str]) -> None:
    port = operator.server_address[1]
    done = headroom(*to, "--port", port)
    assert (done.code, done.out) == (2, "")
    assert f"listening on 127.0.0.1:{port}: another process listens there already; set --port" in done.err


class Opened:
    """`headroom dashboard` with a browser that only notes what it was started with."""

    def __init__(self, to: list[str], folder: Path) -> None:
        script, self._noted, self.home = folder / "browser", folder / "opened", folder / "home"
        self.home.mkdir()
        script.write_text(f'#!/bin/sh\necho "$@" > {self._noted}\n')
        script.chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        command = [sys.executable, "-m", "headroom", *(flag for flag in to if flag != "--no-open")]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env=environment | {"BROWSER": f"{script} %s", "HOME": str(self.home)},
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().removeprefix("The dashboard is at ").strip()
        wait_until(lambda: self._noted.exists() and bool(self._noted.read_text()), "the browser was started")
        self.arguments = self._noted.read_text().strip()

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(90) == 0


@pytest.fixture
def opened(to: list[str], tmp_path: Path) -> Iterator[Opened]:
    made = Opened(to, tmp_path)
    with made.process:
        yield made
        made.process.kill()


def test_a_browser_is_opened_without_the_key_on_its_command_line(opened: Opened) -> None:
    """Every user of the machine can read command lines."""
    key = opened.address.rpartition("key=")[2]
    assert opened.address.startswith("http://127.0.0.1:")
    assert (len(key) > 40, key in opened.arguments) == (True, False)
    file = Path(opened.arguments.removeprefix("file://"))
    assert [stat.S_IMODE(each.stat().st_mode) for each in (file, file.parent)] == [0o600, 0o700]
    assert f'content="0; url={opened.address}"' in file.read_text()
    # Browsers in a sandbox see neither hidden folders nor those of temporary files.
    assert (file.parent.parent, file.parent.name[0]) == (opened.home, "h")
    with urllib.request.urlopen(opened.address) as reply:
        assert reply.status == 200
    wait_until(lambda: not any(opened.home.iterdir()), "a key that was used lies around no longer")
    opened.end()


def test_what_a_browser_was_to_open_is_gone_with_the_command(opened: Opened) -> None:
    assert any(opened.home.iterdir())
    opened.end()
    assert not any(opened.home.iterdir())


GOLDEN = """\
The dashboard is at http://127.0.0.1:PORT/?key=KEY
It works once, for one browser. If no browser opens, open it yourself. Ctrl-C ends the dashboard.
"""


def test_it_says_where_it_is_and_ctrl_c_ends_it(to: list[str]) -> None:
    command = [sys.executable, "-m", "headroom", *to]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=120)
    said = re.sub(r"1:\d+/", "1:PORT/", re.sub(r"key=[\w-]+", "key=KEY", lines))
    assert (process.returncode, said, rest, err) == (0, GOLDEN, "", "")
