"""``ringmere publish``: one event, or lines of JSON from a file or stdin, at the speed one asks for."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ringmere.cli.flags import DEFAULT_SERVER, Json, Server
from ringmere.cli.lines import BadLine, Line, Lines, read_event
from ringmere.client.errors import ClientError, Refused
from ringmere.client.publish import Published, Publisher
from ringmere.core.errors import InvalidParameter
from ringmere.core.event import check_key
from ringmere.core.session import check_session_id

BATCH = 200
"""Most events of one request."""
BATCH_BYTES = 1024 * 1024
"""Most bytes of one request, unless one event is larger."""


class PublishFailed(ClientError):
    """Some lines were not stored; the text names the first of them."""

    code = "publish_failed"


def publish(
    session: Annotated[str, typer.Argument(help="The session to publish to.")],
    type_: Annotated[str | None, typer.Option("--type", help="Type of one event.")] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="JSON", help="Its data; null without.")] = None,
    terminal: Annotated[bool, typer.Option("--terminal", help="The event closes the session.")] = False,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="One event a line; `-` and no --type is stdin.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="Events per second.")] = None,
    pace: Annotated[bool, typer.Option("--pace", help="Each event at its line's `at_ms`.")] = False,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Idempotency key, for lines its beginning: run again with it, nothing comes twice."),
    ] = None,
    degraded: Annotated[
        bool, typer.Option("--degraded", help="While nothing can be stored, send to live readers only.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Publish one event (--type, --data) or many (--file, stdin: an object a line); each is acknowledged.

    A try that got no answer is repeated with the same key, so nothing is stored twice.
    """
    check_session_id(session)
    if type_ is None and (data is not None or terminal):
        raise InvalidParameter("missing_type", "--data and --terminal need --type")
    if type_ is not None and (file is not None or rate is not None or pace):
        raise InvalidParameter("one_or_many", "--type is one event; --file, --rate and --pace are for many")
    if rate is not None and pace:
        raise InvalidParameter("rate_or_pace", "--rate and --pace exclude each other")
    prefix = check_key(key) if key is not None else secrets.token_urlsafe(9)
    if type_ is not None:
        line = _one(type_, data, terminal, prefix)
        asyncio.run(_Run(server, session, _always, as_json, degraded).one(line))
        return
    source = None if file is None or str(file) == "-" else file
    due = _at_rate(rate) if rate is not None else _at_ms if pace else _always
    asyncio.run(_Run(server, session, due, as_json, degraded).many(source, prefix))


def _one(type_: str, data: str | None, terminal: bool, key: str) -> Line:
    try:
        event: dict[str, Any] = {"type": type_, "data": json.loads(data) if data is not None else None}
    except ValueError as error:
        raise InvalidParameter("invalid_data", f"--data is not JSON: {error}; a text is '\"like this\"'") from None
    if terminal:
        event["terminal"] = True
    return read_event(json.dumps(event, ensure_ascii=False).encode(errors="surrogateescape"), 1, key)._replace(key=key)


def _always(line: Line) -> float:
    return 0.0


def _at_ms(line: Line) -> float:
    return line.at_ms / 1000


def _at_rate(rate: float) -> Callable[[Line], float]:
    return lambda line: (line.position - 1) / rate


class _Run:
    """One run of the command. ``due`` says how many seconds after its begin a line is to be published.

    With ``degraded`` an event that cannot be stored goes to live readers only; each is a request of its own.
    """

    def __init__(
        self, server: str, session: str, due: Callable[[Line], float], as_json: bool, degraded: bool = False
    ) -> None:
        self.server = server
        self.session = session
        self.due = due
        self.as_json = as_json
        self.ids: list[int] = []
        self.duplicates = 0
        self.unstored = 0
        self.degraded = degraded
        self.failed: list[str] = []

    async def one(self, line: Line) -> None:
        """Publish one event and print its id."""
        async with Publisher(self.server) as publisher:
            stored = await self._publish(publisher, line)
        if self.as_json:
            self._tell(line, stored)
        elif stored is None:
            print("not stored, sent to live readers only")
        else:
            print(f"{stored.id}{' (stored before)' if stored.duplicate else ''}")

    async def many(self, source: Path | None, prefix: str) -> None:
        """Publish all lines; raise :class:`PublishFailed` when one could not be stored."""
        begin = time.monotonic()
        lines = Lines(source, prefix)
        console = Console(stderr=True)
        progress = _bar(console) if console.is_terminal and not self.as_json else None
        try:
            async with Publisher(self.server) as publisher:
                with progress or nullcontext():
                    bar = progress.add_task(self.session, total=lines.total) if progress else None
                    while batch := await self._due_batch(lines, begin):
                        await self._send(publisher, batch)
                        if progress is not None and bar is not None:
                            progress.update(bar, advance=len(batch))
        except (ClientError, BadLine) as error:
            raise PublishFailed(f"{error}; {self._summary(begin)}; to go on: --key {prefix}") from error
        if self.failed:
            raise PublishFailed(f"{self.failed[0]}; {len(self.failed)} failed, {self._summary(begin)}")
        if not self.as_json:
            print(self._summary(begin))

    async def _due_batch(self, lines: Lines, begin: float) -> list[Line]:
        """Wait for the next line and its time, and return it with those that are due as well; [] at the end."""
        first = await lines.next()
        if first is None:
            return []
        await asyncio.sleep(max(0.0, begin + self.due(first) - time.monotonic()))
        batch = [first]
        size = first.size
        now = time.monotonic() - begin
        while len(batch) < BATCH and (line := lines.peek()) is not None:
            size += line.size
            if self.due(line) > now or size > BATCH_BYTES:
                break
            lines.take()
            batch.append(line)
        return batch

    async def _send(self, publisher: Publisher, batch: list[Line]) -> None:
        if len(batch) == 1 or self.degraded:
            for line in batch:
                try:
                    self._count(line, await self._publish(publisher, line))
                except Refused as refused:
                    self._count(line, refused)
            return
        rows = [{**line.event, "key": line.key} for line in batch]
        try:
            results = await publisher.publish_batch(self.session, rows)
        except Refused as refused:
            row = refused.problem.get("index")
            if not isinstance(row, int) or row >= len(batch):
                raise
            raise BadLine(f"line {batch[row].number}, the rest of its batch was not stored: {refused}") from refused
        for line, result in zip(batch, results, strict=True):
            self._count(line, result)

    async def _publish(self, publisher: Publisher, line: Line) -> Published | None:
        if self.degraded:
            return await publisher.publish_or_degrade(self.session, line.event, key=line.key)
        return await publisher.publish(self.session, line.event, key=line.key)

    def _count(self, line: Line, result: Published | Refused | None) -> None:
        if isinstance(result, Refused):
            self.failed.append(f"line {line.number}: {result}")
        elif result is None:
            self.unstored += 1
        else:
            self.ids.append(result.id)
            self.duplicates += result.duplicate
        if self.as_json:
            self._tell(line, result)

    def _tell(self, line: Line, result: Published | Refused | None) -> None:
        answer: dict[str, Any] = {"sessionId": self.session, "line": line.number}
        if isinstance(result, Refused):
            answer.update(code=result.code, detail=str(result))
        elif result is None:
            answer.update(id=None, degraded=True)
        else:
            answer.update(id=result.id, duplicate=result.duplicate)
        sys.stdout.write(json.dumps(answer) + "\n")

    def _summary(self, begin: float) -> str:
        live = f"{self.unstored} not stored, sent to live readers only" if self.unstored else ""
        if not self.ids:
            return live or "nothing published"
        again = f", {self.duplicates} of them stored before" if self.duplicates else ""
        seconds = time.monotonic() - begin
        ids = f"ids {min(self.ids)} … {max(self.ids)}"
        events = f"{len(self.ids)} event{'s' if len(self.ids) > 1 else ''}"
        return f"{events} published to {self.session}{again}, {ids}, in {seconds:.1f} s{live and f', {live}'}"


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)
