"""The files of the page, read once and kept: a browser asks for twenty of them, and the loop has better things to do than to open files."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

WORTH_PACKING: Final = 1000
"""Bytes below which packing saves nothing."""


class File(NamedTuple):
    """One file as it is sent."""

    plain: bytes
    packed: bytes
    """Empty where packing saves nothing."""
    type: str
    tag: str


class Files:
    """All files of some folders, and a few that are made, under the paths at which they are asked for."""

    def __init__(self, folders: dict[str, Path], made: dict[str, str]) -> None:
        """The folders by their paths; one that is not there has no files."""
        read = {
            prefix + path.relative_to(folder).as_posix(): path.read_bytes()
            for prefix, folder in folders.items()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        contents = read | {name: text.encode() for name, text in made.items()}
        self._files = {name: _file(name, contents[name]) for name in sorted(contents)}

    @property
    def names(self) -> list[str]:
        """Their paths, in order."""
        return list(self._files)

    async def send(self, request: web.Request) -> web.Response:
        """The file at the path of the request."""
        found = self._files.get(request.match_info["path"])
        if found is None:
            raise web.HTTPNotFound(text="Not found.\n")
        headers = {"ETag": found.tag, "Vary": "Accept-Encoding"}
        if found.tag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        is_packed = bool(found.packed) and "gzip" in request.headers.get("Accept-Encoding", "")
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        headers["Content-Type"] = found.type
        return web.Response(body=found.packed if is_packed else found.plain, headers=headers)


def _file(name: str, plain: bytes) -> File:
    packed = gzip.compress(plain, mtime=0) if len(plain) >= WORTH_PACKING else b""
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if kind.startswith("text/"):
        kind += "; charset=utf-8"
    tag = f'"{hashlib.sha256(plain).hexdigest()[:20]}"'
    return File(plain, packed if len(packed) < len(plain) else b"", kind, tag)
