"""What a connection holds from its first moment on: there is one for every kind that is watched."""

import gc
import ssl
from asyncio import sslproto
from pathlib import Path

from headroom.adapters.kube.config import Pem
from headroom.adapters.kube.http import TLS_BUFFER
from tests.adapters.test_http import always, reply, serving
from tests.certificates import Authority


async def test_a_connection_under_tls_holds_a_small_buffer_and_reads_large_answers(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.server("server"))
    large, pem = b"x" * 3 * TLS_BUFFER, Pem("a test", file=authority.file)
    async with serving(always(reply(200, large)), tls, authority=pem) as (_, transport):
        assert (await transport.request("GET", "/api/v1/pods")).body == large
        gc.collect()
        ends = [each for each in gc.get_objects() if isinstance(each, sslproto.SSLProtocol) and not each._server_side]
        held = [len(each._ssl_buffer) for each in ends]  # type: ignore[attr-defined]  # the types do not tell
        assert held == [TLS_BUFFER]
