"""A renewed certificate is served without a restart."""

import asyncio
import os
import ssl
from pathlib import Path

import pytest

from headroom.web import certificate
from tests.runtime.fakes import HandClock


async def served(tls: ssl.SSLContext) -> bytes:
    """The certificate that a client is shown."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls)
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
    return shown


async def test_a_renewed_file_is_read_again_and_half_of_a_pair_is_not(tmp_path: Path) -> None:
    file = tmp_path / "tls.pem"
    file.write_bytes(certificate.self_signed(("one",)))
    tls = certificate.context(str(file), "", ())
    first = await served(tls)
    following = asyncio.create_task(certificate.follow(tls, str(file), "", HandClock()))
    await asyncio.sleep(0)

    file.write_bytes(b"half of a fi")
    os.utime(file, (1, 1))
    await asyncio.sleep(0.01)
    assert await served(tls) == first

    file.write_bytes(certificate.self_signed(("two",)))
    for _ in range(3000):
        await asyncio.sleep(0.01)
        if await served(tls) != first:
            break
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert await served(tls) != first


async def test_a_file_that_is_gone_at_the_moment_it_is_looked_at_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tls.pem"
    file.write_bytes(certificate.self_signed(("one",)))
    tls = certificate.context(str(file), "", ())
    first = await served(tls)
    file.unlink()
    with monkeypatch.context() as patched:
        # Whoever asks first whether it is there is told yes: it is replaced in between.
        patched.setattr(os.path, "exists", lambda _: True)
        following = asyncio.create_task(certificate.follow(tls, str(file), "", HandClock()))
        await asyncio.sleep(0.01)
    assert not following.done()
    file.write_bytes(certificate.self_signed(("two",)))
    for _ in range(3000):
        await asyncio.sleep(0.01)
        if await served(tls) != first:
            break
    following.cancel()
    assert await served(tls) != first
