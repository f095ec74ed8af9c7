"""What is left half read: the connection is cut, whatever the server does."""

import asyncio
import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest

from headroom.adapters.kube.config import ClientConfig, Pem
from headroom.adapters.kube.http import HttpTransport
from headroom.model.errors import Unavailable
from tests.adapters.test_http import STREAM, Clock, chunk
from tests.certificates import Authority

BEGUN = STREAM + chunk(b"{}\n")


class Silent:
    """Begins an answer and then neither says nor hears anything under TLS any more."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self._tls = tls
        self._raw: socket.socket | None = None
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed before anybody came
            accepted, _ = self._listener.accept()
            wrapped = self._tls.wrap_socket(accepted, server_side=True)
            wrapped.recv(65536)
            wrapped.sendall(BEGUN)
            self._raw = socket.socket(fileno=wrapped.detach())

    def is_cut(self) -> bool:
        """Whether the other side closes the connection itself, without an answer."""
        self._serving.join(5)
        assert self._raw is not None
        self._raw.settimeout(5)
        try:
            while self._raw.recv(65536):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self._listener.close()
        if self._raw is not None:
            self._raw.close()


@pytest.mark.parametrize("is_watch", [True, False])
async def test_what_is_left_half_read_is_cut_although_the_server_says_no_goodbye(
    tmp_path: Path, *, is_watch: bool
) -> None:
    authority = Authority(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.server("server"))
    silent = await asyncio.to_thread(Silent, tls)
    config = ClientConfig(source="a test", server=silent.url, authority=Pem("a test", file=authority.file))
    transport = HttpTransport(config, Clock())
    try:
        if is_watch:
            lines = transport.stream("/api/v1/pods", query={}, idle=5)
            assert await anext(lines) == b"{}"
            await lines.aclose()  # type: ignore[attr-defined]  # it is a generator
        else:
            with pytest.raises(Unavailable):
                await transport.request("GET", "/api/v1/pods", timeout=0.2)
        await transport.close()
        # Not by the goodbye, which never comes, nor by the collector's warning once the loop is gone.
        assert await asyncio.to_thread(silent.is_cut)
    finally:
        silent.close()
