"""`headroom dashboard`: the operator's dashboard on a workstation, with the rights of the user's own kubeconfig and nothing exposed."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from headroom.cli.options import Context, Kubeconfig, OperatorNamespace
from headroom.model.errors import Misconfigured, Refused, Unavailable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from headroom.adapters.kube.config import ClientConfig
    from headroom.adapters.kube.operator_link import OperatorLink
    from headroom.model.ports import Lease, Leases
    from headroom.runtime.settings import Settings
    from headroom.web.relay import Relay

FIRST_PORT: Final = 8480


class DashboardOptions(NamedTuple):
    """What was asked for."""

    port: int | None
    open: bool
    address: str
    authority: Path | None


def dashboard(
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help=f"The port on 127.0.0.1; the first free one from {FIRST_PORT} on if not set."
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser, or only print the address.")] = True,
    address: Annotated[
        str,
        typer.Option(metavar="URL", help="Connect to the operator at https://HOST:PORT, not through the API server."),
    ] = "",
    certificate_authority: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="PEM of the authority of the operator's certificate. Without it, the connection is verified only up to the API server.",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    operator_namespace: OperatorNamespace = None,
) -> None:
    """Open the dashboard of the operator in a cluster.

    It connects through the API server, like kubectl port-forward, and shows what you may see: all budgets, or those of the namespaces in which you may list them. Your credentials stay here; the browser gets a cookie for this dashboard only. Ctrl-C ends it.

    Example: headroom dashboard --context production
    """
    import asyncio

    from headroom.cli import live

    settings = live.settings_of(kubeconfig, context, operator_namespace)
    asyncio.run(_serve(settings, DashboardOptions(port, open_, address, certificate_authority)))


async def _serve(settings: Settings, wishes: DashboardOptions) -> None:
    from headroom.adapters.kube.client import Kube
    from headroom.adapters.kube.config import load
    from headroom.adapters.kube.http import HttpTransport
    from headroom.adapters.kube.leases import KubeLeases
    from headroom.adapters.kube.operator_link import OperatorLink
    from headroom.adapters.kube.tunnel import Tunnel
    from headroom.cli import live
    from headroom.runtime.clock import RealClock

    config = load(settings.kubeconfig, settings.context)
    clock = RealClock()
    transport = HttpTransport(config, clock)
    kube = Kube(transport, clock)
    link = None
    try:
        way = _way(config, settings, wishes)
        if wishes.address:
            link = OperatorLink(way, transport.credentials)
        else:
            await live.answers(kube, config)
            leases = KubeLeases(kube, settings.operator_namespace, settings.lease_name)
            lease = await _lease_of(leases)
            beside = _beside(config, lease) if lease is not None and not wishes.authority else None
            if beside is not None:
                link = OperatorLink(beside, transport.credentials, moved=lambda: _moved(config, leases))
            else:
                tunnel = Tunnel(transport, kube, settings.operator_namespace, lease.holder if lease is not None else "")
                link = OperatorLink(way, transport.credentials, tunnel)
        await _greet(link, config.source)
        await _show(link, wishes)
    finally:
        if link is not None:
            await link.close()
        await kube.close()


async def _lease_of(leases: Leases) -> Lease | None:
    """The operator's lease, if there is one and we may read it."""
    from headroom.adapters.kube import errors

    try:
        return await leases.read()
    except (errors.Forbidden, Unavailable):
        return None


def _beside(config: ClientConfig, lease: Lease) -> ClientConfig | None:
    """The way to an operator that runs on this very host, which no API server leads to; None if it runs elsewhere.

    Its lease vouches for the certificate, so a token is shown to nobody else who listens on this host.
    """
    import socket
    from dataclasses import replace

    from headroom.adapters.kube.config import Pem
    from headroom.api import marks

    host, _, _ = lease.holder.rpartition("-")
    port = lease.annotations.get(marks.DASHBOARD_PORT, "")
    certificate = lease.annotations.get(marks.DASHBOARD_CERTIFICATE, "")
    if host != socket.gethostname() or not certificate or not (port.isascii() and port.isdecimal()):
        return None
    authority = Pem("the certificate in the operator's lease", certificate.encode())
    return replace(config, server=f"https://localhost:{port}", server_name="", authority=authority, verify=True)


async def _moved(config: ClientConfig, leases: Leases) -> ClientConfig | None:
    lease = await _lease_of(leases)
    return _beside(config, lease) if lease is not None else None


def _way(config: ClientConfig, settings: Settings, wishes: DashboardOptions) -> ClientConfig:
    """How the operator is reached and verified, and the certificate that the user has."""
    from dataclasses import replace
    from urllib.parse import urlsplit

    from headroom.adapters.kube.config import Pem
    from headroom.adapters.kube.tls import tls_context

    if wishes.address and (urlsplit(wishes.address).scheme != "https" or not urlsplit(wishes.address).netloc):
        raise Misconfigured(f"reading --address: it must be like https://headroom.example.com, not {wishes.address!r}")
    authority = Pem("--certificate-authority", file=wishes.authority.absolute()) if wishes.authority else None
    name = f"headroom.{settings.operator_namespace}.svc"
    way = replace(
        config,
        server=wishes.address.rstrip("/") or f"https://{name}",
        server_name="" if wishes.address else name,
        authority=authority,
        # The operator's certificate is made at start and known to nobody unless it was given one. Within the tunnel the API server
        # vouches for the way to the pod, which is as good as its own trust in kubelets; see docs/access.md.
        verify=bool(wishes.address or authority),
    )
    tls_context(way)  # so that a bad file is said before anybody is asked
    return way


async def _greet(link: OperatorLink, source: str) -> None:
    """Ask for what the first page needs. Raises a sentence that says what to do if it cannot be had."""
    import msgspec

    from headroom.web.relay import RelayProblem

    doing = "asking the operator for its dashboard"
    async with link.answer("GET", "/api/overview", {}) as answer:
        status, body = answer.status, await answer.read()
    if status == 404:
        raise Refused(
            f"{doing}: the operator is of an older version without a dashboard; update it, or use headroom status"
        )
    if status == 401:
        raise Refused(
            f"{doing}: it does not accept your credentials; {source} must have a token or a client certificate that the API server accepts, "
            "and for certificates the operator needs the RoleBinding headroom-client-certificates of deploy/rbac.yaml"
        )
    if status != 403:
        return  # well, or on its way: the page says what is missing
    try:
        why = msgspec.json.decode(body, type=RelayProblem).problem
    except msgspec.DecodeError:
        raise Unavailable(f"{doing}: something else answers there, with status {status}; check --address") from None
    raise Refused(f"{doing}: {why.rstrip('.')}")


async def _show(link: OperatorLink, wishes: DashboardOptions) -> None:
    import asyncio
    import signal

    from headroom.cli import output
    from headroom.web.addresses import free_port
    from headroom.web.listening import Servers
    from headroom.web.relay import Relay

    ends = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    relay, servers = Relay(link), Servers()
    opening = None
    try:
        wanted = wishes.port or free_port(FIRST_PORT)
        relay.port = await servers.listen(relay.app(), f"127.0.0.1:{wanted}", "--port")
        output.line(f"The dashboard is at {relay.address}")
        output.line("It works once, for one browser. If no browser opens, open it yourself. Ctrl-C ends the dashboard.")
        opening = asyncio.create_task(_open(relay)) if wishes.open else None
        await ends.wait()
    finally:
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        await servers.close()


async def _open(relay: Relay) -> None:
    """Start a browser, and clean up once the dashboard is entered."""
    import asyncio
    import webbrowser

    try:
        with _door(relay.address) as door:
            # A browser in a terminal returns only when it is closed.
            starting = asyncio.create_task(asyncio.to_thread(webbrowser.open, door.as_uri()))
            starting.add_done_callback(_started)
            await relay.entered.wait()
    except OSError as problem:
        _open_it_yourself(problem.strerror or str(problem))


@contextmanager
def _door(address: str) -> Iterator[Path]:
    """A file that leads to the address, for our eyes only: every user of this machine can read what a browser is started with."""
    import html
    import os
    from tempfile import TemporaryDirectory

    # Browsers in a sandbox, as Ubuntu has them, see neither hidden folders nor those of temporary files.
    home = os.path.expanduser("~")  # noqa: PTH111  unlike Path.home it does not fail where there is none
    place = home if os.access(home, os.W_OK) else None
    with TemporaryDirectory(prefix="headroom-dashboard-", dir=place, ignore_cleanup_errors=True) as folder:
        file = Path(folder, "open.html")
        file.touch(mode=0o600)
        to = html.escape(address)
        file.write_text(
            f'<!doctype html>\n<meta charset="utf-8">\n<meta http-equiv="refresh" content="0; url={to}">\n'
            f'<title>Headroom</title>\n<p><a href="{to}">The dashboard</a></p>\n'
        )
        yield file


def _started(starting: asyncio.Task[bool]) -> None:
    if starting.cancelled() or starting.exception() or not starting.result():
        _open_it_yourself("there is none")


def _open_it_yourself(why: str) -> None:
    from headroom.cli import output

    output.say(f"No browser could be started ({why}); open the address yourself.")
