"""What a chart costs in the browser: the library we use, against the usual one, under the dashboard's own content policy.

    make bench NAME=charts

The same three lines of 1,440 points are drawn by each, in headless Chromium, in a fresh profile with nothing cached. The time runs from
the navigation to the frame after the plot was made. The server, its headers and its files are those of the dashboard.
"""

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from aiohttp import web
from playwright.sync_api import Browser

from bench import results
from bench.results import ROOT, Row
from headroom.web.headers import HEADERS
from headroom.web.listening import Servers
from headroom.web.server import CHARTS
from tests.browser.chromium import chromium

RUNS = 9
POINTS = 1_440

DATA = f"""
const t = Array.from({{ length: {POINTS} }}, (_, each) => 1770000000 + 60 * each);
const lines = [0, 1, 2].map(line => t.map((_, each) => 100 + 50 * Math.sin(each / (90 + 20 * line)) + line * 20));
const done = () => requestAnimationFrame(() => setTimeout(() => {{ window.drawnAt = performance.now(); }}));
"""
UPLOT = """
const looks = [{ stroke: "blue" }, { stroke: "green" }, { stroke: "red" }];
new uPlot({ width: 900, height: 260, series: [{}, ...looks] }, [t, ...lines], document.getElementById("plot"));
done();
"""
PLOTLY = """
const traces = lines.map(y => ({ x: t.map(each => new Date(each * 1000)), y, mode: "lines" }));
Plotly.newPlot("plot", traces, { width: 900, height: 260 }).then(done);
"""


class Library(NamedTuple):
    """One charting library: what a page loads of it, how it draws, and what is installed."""

    name: str
    files: tuple[Path, ...]
    draws: str
    folder: Path


def uplot() -> Library:
    files = (CHARTS / "uPlot.iife.min.js", CHARTS / "uPlot.min.css")
    return Library("uPlot", files, UPLOT, CHARTS.parent)


def plotly() -> Library:
    """The usual library for Python, from the environment of the peers."""
    subprocess.run([ROOT / "tools" / "setup", "bench"], check=True)
    found = list((ROOT / ".venv-bench").glob("lib/python*/site-packages/plotly/package_data/plotly.min.js"))
    return Library("plotly", (found[0],), PLOTLY, found[0].parent.parent)


@contextlib.contextmanager
def served(library: Library) -> Iterator[str]:
    """A page with one chart, under the headers of the dashboard."""
    loop, servers = asyncio.new_event_loop(), Servers()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        listening = servers.listen(_app(library), "127.0.0.1:0", "the page")
        port = asyncio.run_coroutine_threadsafe(listening, loop).result(10)
        yield f"http://127.0.0.1:{port}/"
    finally:
        asyncio.run_coroutine_threadsafe(servers.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _app(library: Library) -> web.Application:
    app = web.Application()
    links = [f'<link rel="stylesheet" href="{file.name}">' for file in library.files if file.suffix == ".css"]
    scripts = [f'<script src="{file.name}"></script>' for file in library.files if file.suffix == ".js"]
    body = '<div id="plot"></div>', *scripts, '<script src="draw.js"></script>'
    page = "\n".join(("<!doctype html><title>chart</title>", *links, *body))

    async def document(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html", headers=HEADERS)

    async def draw(_: web.Request) -> web.Response:
        return web.Response(text=DATA + library.draws, content_type="text/javascript", headers=HEADERS)

    async def file(request: web.Request) -> web.FileResponse:
        paths = {f"/{each.name}": each for each in library.files}
        return web.FileResponse(paths[request.path], headers=HEADERS)

    app.add_routes([web.get("/", document), web.get("/draw.js", draw)])
    app.add_routes([web.get(f"/{each.name}", file) for each in library.files])
    return app


class Found(NamedTuple):
    """What one library costs."""

    ms: float
    loaded: int
    installed: int
    refused: int


def measured(browser: Browser, library: Library) -> Found:
    """Draw the chart several times, each in a fresh profile."""
    times, refused = [], 0
    with served(library) as url:
        for _ in range(RUNS):
            context = browser.new_context()
            page = context.new_page()
            page.add_init_script(
                "window.refused = 0; document.addEventListener('securitypolicyviolation', () => { window.refused += 1; });"
            )
            page.goto(url)
            page.wait_for_function("window.drawnAt !== undefined")
            times.append(page.evaluate("window.drawnAt"))
            refused = max(refused, page.evaluate("window.refused"))
            context.close()
    installed = sum(each.stat().st_size for each in library.folder.rglob("*") if each.is_file())
    return Found(statistics.median(times), sum(each.stat().st_size for each in library.files), installed, refused)


def rows(ours: Found, theirs: Found) -> list[Row]:
    def row(figure: str, ours: float, theirs: float, unit: str, goal: float | None = None) -> Row:
        value, peer_value = round(ours, 1), round(theirs, 1)
        return Row(figure=figure, value=value, unit=unit, goal=goal, peer="plotly", peer_value=peer_value)

    return [
        row("navigation to the first plot, median", ours.ms, theirs.ms, "ms"),
        Row(figure="the same, plotly / uPlot", value=round(theirs.ms / ours.ms, 1), unit="x", goal=4, sense="min"),
        row("script and style loaded", ours.loaded / 1000, theirs.loaded / 1000, "kB", goal=60),
        row("installed", ours.installed / 1e6, theirs.installed / 1e6, "MB"),
        row("refused by the content policy", ours.refused, theirs.refused, "times", goal=0),
    ]


def main() -> int:
    versions = {"uplot": json.loads((CHARTS.parent / "package.json").read_text())["version"]}
    with chromium() as browser:
        versions["chromium"] = browser.version
        ours, peer = uplot(), plotly()
        found = measured(browser, ours), measured(browser, peer)
    metadata = sorted(peer.folder.parent.glob("plotly-*.dist-info"))
    versions["plotly"] = metadata[0].name.removeprefix("plotly-").removesuffix(".dist-info") if metadata else "unknown"
    return 1 if results.write("charts", rows(*found), also=versions) else 0


if __name__ == "__main__":
    sys.exit(main())
