"""HTTP by hand over a real socket: what was sent is what the test says, what came is shown byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

DEADLINE = 10.0


@dataclass
class Answer:
    """A response: ``headers`` by lower-case name, ``raw`` the bytes of status line and headers."""

    version: str
    status: int
    headers: dict[str, str]
    raw: bytes
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self.headers
        problem = self.json
        assert problem["status"] == self.status
        return str(problem["code"])


@dataclass
class Frame:
    """One SSE block: ``raw`` without its blank line; comments and fields apart."""

    raw: str

    def field(self, name: str) -> str | None:
        values = [line[len(name) + 2 :] for line in self.raw.split("\n") if line.startswith(name + ": ")]
        assert len(values) < 2, self.raw
        return values[0] if values else None

    @property
    def id(self) -> int | None:
        text = self.field("id")
        return None if text is None else int(text)

    @property
    def type(self) -> str | None:
        return self.field("event")

    @property
    def json(self) -> Any:
        """The envelope."""
        text = self.field("data")
        assert text is not None, self.raw
        return json.loads(text)

    @property
    def data(self) -> Any:
        """The envelope's ``data``."""
        return self.json["data"]

    @property
    def retry(self) -> int | None:
        text = self.field("retry")
        return None if text is None else int(text)


class Connection:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.chunked = False

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> Answer:
        """Read status line and headers."""
        async with asyncio.timeout(DEADLINE):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        lines = raw.decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        headers: dict[str, str] = {}
        for line in lines[1:-2]:
            name, value = line.split(": ", 1)
            headers[name.lower()] = value
        self.chunked = headers.get("transfer-encoding") == "chunked"
        return Answer(version, int(status), headers, raw)

    async def answer(self, *, empty: bool = False) -> Answer:
        """Read a whole response; ``empty`` when none has a body (to HEAD)."""
        answer = await self.head()
        if empty or answer.status in (204, 304):
            return answer
        if self.chunked:
            answer.body = b"".join([chunk async for chunk in self.chunks()])
        elif "content-length" in answer.headers:
            async with asyncio.timeout(DEADLINE):
                answer.body = await self.reader.readexactly(int(answer.headers["content-length"]))
        else:
            answer.body = await self.rest()
        return answer

    async def chunks(self) -> AsyncIterator[bytes]:
        """Read chunks up to and including the last one; end of file before it is a fault."""
        while True:
            async with asyncio.timeout(DEADLINE):
                size = int(await self.reader.readuntil(b"\r\n"), 16)
                data = await self.reader.readexactly(size + 2)
            assert data[-2:] == b"\r\n"
            if size == 0:
                return
            yield data[:-2]

    async def rest(self) -> bytes:
        """Read to the end of the connection."""
        async with asyncio.timeout(DEADLINE):
            return await self.reader.read()

    async def blobs(self) -> AsyncIterator[bytes]:
        """Read a streamed body in the pieces it comes in, whatever its framing."""
        if self.chunked:
            async for chunk in self.chunks():
                yield chunk
            return
        while data := await asyncio.wait_for(self.reader.read(65536), DEADLINE):
            yield data

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close with a TCP reset."""
        self.writer.transport.abort()


class Stream:
    """The frames of an SSE body."""

    def __init__(self, connection: Connection, answer: Answer) -> None:
        self.connection = connection
        self.answer = answer
        self.text = ""
        self.ended = False
        self._blobs = connection.blobs()

    async def block(self) -> Frame | None:
        """Return the next block, or comment line before it; None at the clean end."""
        while not self._whole_block():
            try:
                self.text += (await anext(self._blobs)).decode()
            except StopAsyncIteration:
                assert self.text == "", f"cut: {self.text!r}"
                self.ended = True
                return None
        block, self.text = self.text.split("\n" if self.text.startswith(":") else "\n\n", 1)
        return Frame(block)

    def _whole_block(self) -> bool:
        return ("\n" if self.text.startswith(":") else "\n\n") in self.text

    async def frame(self) -> Frame | None:
        """Return the next block that is not only comments."""
        while (frame := await self.block()) is not None:
            if any(not line.startswith((":", "retry:")) for line in frame.raw.split("\n")):
                return frame
        return None

    async def take(self, count: int) -> list[Frame]:
        """Return the next ``count`` frames."""
        frames = [await self.frame() for _ in range(count)]
        assert all(frames), "the stream ended early"
        return [frame for frame in frames if frame is not None]

    async def all(self) -> list[Frame]:
        """Return the frames up to the clean end."""
        frames: list[Frame] = []
        while (frame := await self.frame()) is not None:
            frames.append(frame)
        return frames

    def close(self) -> None:
        self.connection.close()


async def connect(port: int) -> Connection:
    """Open a connection to the loopback."""
    return Connection(*await asyncio.open_connection("127.0.0.1", port))


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[Connection]:
    """Open a connection that is closed at the end of the block."""
    opened = await connect(port)
    try:
        yield opened
    finally:
        opened.close()
        with contextlib.suppress(ConnectionError):
            await opened.writer.wait_closed()


def request_bytes(
    method: str,
    target: str,
    headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
    body: bytes | None = None,
    version: str = "1.1",
) -> bytes:
    """Return a request as bytes; ``Content-Length`` is added for a body, and ``Host``."""
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers or [])
    names = {name.lower() for name, _ in pairs}
    if "host" not in names:
        pairs.insert(0, ("Host", "ringmere.test"))
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        pairs.append(("Content-Length", str(len(body))))
    lines = [f"{method} {target} HTTP/{version}", *(f"{name}: {value}" for name, value in pairs)]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


async def fetch(
    port: int,
    method: str,
    target: str,
    headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
    body: bytes | None = None,
    version: str = "1.1",
) -> Answer:
    """Send one request on a fresh connection and return the whole answer."""
    async with connection(port) as opened:
        await opened.send(request_bytes(method, target, headers, body, version))
        return await opened.answer(empty=method == "HEAD")
