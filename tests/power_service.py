"""Power services as people run them: an HTTP service and BMCs that speak Redfish. Each knows by itself what it was asked.

The HTTP service has POST /NAME/start and /NAME/stop and GET /NAME, and can be told to serve a machine badly. The BMCs are those of the
emulator of sushy-tools, in a process of its own: whatever it accepts, it does some seconds later.
"""

import base64
import contextlib
import http.server
import json
import re
import ssl
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import bcrypt

from tests.processes import Guard, Process, free_ports

Mode = Literal["accept", "fail", "slow", "redirect", "lie"]
SLOW_SECONDS = 4
TRAP = "trap"
"""Where redirects lead: the same address, which is allowed, so that only not following them keeps anybody out."""


class Asked(NamedTuple):
    """One request that arrived."""

    at: int
    """Milliseconds since 1970."""
    method: str
    machine: str
    command: str
    headers: dict[str, str]
    body: str


class PowerService:
    """Switches machines on and off for whoever asks."""

    def __init__(self, switch: Callable[[str, bool], None], is_on: Callable[[str], bool]) -> None:
        """`switch` is told what was accepted: the machine, and whether it shall be on; `is_on` says what is so."""
        self.modes: dict[str, Mode] = {}
        self.asked: list[Asked] = []
        self._switch, self._is_on = switch, is_on
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def commands(self, *machines: str) -> list[tuple[str, str]]:
        """Which of these machines was told what, in order."""
        return [(each.machine, each.command) for each in list(self.asked) if each.machine in machines and each.command]

    def trapped(self) -> list[Asked]:
        """Who came along a redirect."""
        return [each for each in list(self.asked) if each.machine == TRAP]

    # Answering

    def answer(self, asked: Asked) -> tuple[int, dict[str, str], dict[str, str]]:
        """Status, headers and body."""
        self.asked.append(asked)
        if asked.method == "GET":
            return 200, {}, {"power": "on" if self._is_on(asked.machine) else "off"}
        mode = self.modes.get(asked.machine, "accept")
        if mode == "fail":
            return 500, {}, {"error": "out of order"}
        if mode == "redirect":
            return 307, {"Location": f"{self.url}/{TRAP}/{asked.command}"}, {}
        if mode != "lie" and asked.machine != TRAP:
            self._switch(asked.machine, asked.command == "start")
        if mode == "slow":
            time.sleep(SLOW_SECONDS)
        return 202, {}, {"accepted": asked.command}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._serve()

            def do_POST(self) -> None:
                self._serve()

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                machine, _, command = self.path.strip("/").partition("/")
                at, headers = time.time_ns() // 1_000_000, {name.lower(): value for name, value in self.headers.items()}
                status, more, said = service.answer(Asked(at, self.command, machine, command, headers, body))
                text = json.dumps(said).encode()
                self.send_response(status)
                for name, value in (more | {"Content-Length": str(len(text))}).items():
                    self.send_header(name, value)
                with contextlib.suppress(ConnectionError):  # whoever asked did not wait for the answer
                    self.end_headers()
                    self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Nothing: the tests ask the service itself."""

        return Handler


class Bmcs:
    """One process with a BMC for each machine, behind TLS and a password."""

    USER, PASSWORD = "admin", "correct horse"

    def __init__(self, folder: Path, machines: Sequence[str], certificate: tuple[Path, Path], authority: Path) -> None:
        self.systems = {name: str(uuid.uuid5(uuid.NAMESPACE_DNS, name)) for name in machines}
        self._folder, self._certificate, self._authority = folder, certificate, authority
        [self._port] = free_ports(1)
        self._guard: Guard | None = None

    def __enter__(self) -> Self:
        self._guard = Guard(self._folder)
        command = [sys.executable, "-m", "sushy_tools.emulator.main", "--config", str(self._write_settings())]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self._folder)}
        self._process = Process(command, self._folder / "log", self._guard, environment)
        self._process.wait_ready(lambda: "Running on" in self._process.log.read_text())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()
        if self._guard is not None:
            self._guard.close()

    @property
    def url(self) -> str:
        """Where they answer."""
        return f"https://127.0.0.1:{self._port}"

    def is_on(self, machine: str) -> bool:
        """Its power, as its BMC tells it."""
        credentials = base64.b64encode(f"{self.USER}:{self.PASSWORD}".encode()).decode()
        path = f"{self.url}/redfish/v1/Systems/{self.systems[machine]}"
        request = urllib.request.Request(path, headers={"Authorization": f"Basic {credentials}"})
        context = ssl.create_default_context(cafile=self._authority)
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            found: dict[str, Any] = json.load(answer)
        return str(found["PowerState"]) == "On"

    def resets(self, machine: str) -> list[int]:
        """The answers to all that told the machine to change its power, in order."""
        path = f"/redfish/v1/Systems/{self.systems[machine]}/Actions/ComputerSystem.Reset"
        answers = re.findall(rf'POST {re.escape(path)} HTTP/1\.1[^ ]*" (\d+)', self._process.log.read_text())
        return [int(each) for each in answers]

    def _write_settings(self) -> Path:
        secret = bcrypt.hashpw(self.PASSWORD.encode(), bcrypt.gensalt(rounds=4)).decode()
        (self._folder / "users").write_text(f"{self.USER}:{secret}\n")
        certificate, key = map(str, self._certificate)
        systems = [
            {"uuid": system, "name": name, "power_state": "Off", "nics": []} for name, system in self.systems.items()
        ]
        settings: dict[str, object] = {
            "LISTEN_IP": "127.0.0.1",
            "LISTEN_PORT": self._port,
            "SSL_CERT": certificate,
            "SSL_KEY": key,
            "AUTH_FILE": str(self._folder / "users"),
            "STATE_DIR": str(self._folder),
            "FAKE_DRIVER": True,
            "FAKE_SYSTEMS": systems,
        }
        file = self._folder / "settings.py"
        file.write_text("".join(f"SUSHY_EMULATOR_{name} = {value!r}\n" for name, value in settings.items()))
        return file
