"""Messages over a pair of sockets between two processes of ours, each with its length before it."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

_LENGTH: Final = struct.Struct(">I")

Said = TypeVar("Said")


class Link(Generic[Said]):
    """One end: messages of one kind come in, any go out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: Any, longest: int) -> None:
        self._reader, self._writer, self._longest = reader, writer, longest
        self._decoder: msgspec.msgpack.Decoder[Said] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()

    @classmethod
    async def over(cls, end: socket.socket, kind: Any, longest: int = 2**32 - 1) -> Link[Said]:
        """A link over one end of a pair of sockets."""
        return cls(*await asyncio.open_unix_connection(sock=end), kind, longest)

    @property
    def unread(self) -> int:
        """Bytes that the other end has not taken yet."""
        return int(self._writer.transport.get_write_buffer_size())

    def say(self, message: Struct) -> None:
        """Send a message, sooner or later."""
        data = self._encoder.encode(message)
        self._writer.write(_LENGTH.pack(len(data)) + data)

    async def heard(self) -> Said | None:
        """The next message; None: the other end is gone."""
        try:
            [length] = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > self._longest:
                return None
            return self._decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError, msgspec.DecodeError):
            return None

    def close(self) -> None:
        """Hang up."""
        self._writer.transport.abort()
