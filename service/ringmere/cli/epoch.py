"""``ringmere epoch``: what the ids of a log mean, and since when; a new epoch after a restore."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from ringmere.cli.clock import date_and_time
from ringmere.cli.flags import Json, of_the_log, with_settings
from ringmere.cli.reach import reach
from ringmere.core.errors import InvalidParameter, LogRefused

if TYPE_CHECKING:
    from ringmere.log.connect import Connection
    from ringmere.log.epoch_record import EpochRecord
    from ringmere.log.epoch_store import EpochStore
    from ringmere.log.jetstream import LogSettings

app = typer.Typer(help="What the ids of a log mean, and since when.", no_args_is_help=True)


class State(NamedTuple):
    """A shard's record beside its stream: when that was made, and its last sequence; None without a stream."""

    shard: int
    record: EpochRecord
    created: str | None
    tail: int | None


class Bump(NamedTuple):
    """What to add: to one shard or to all, see ``EpochStore.bump``."""

    reason: str
    shard: int | None
    after: int | None
    epoch: int | None


def show(flags: Mapping[str, Any], *, as_json: Json = False) -> None:
    """Show the epoch table of each shard, and the stream it belongs to.

    Give it the flags, or the variables, that `ringmere serve` gets to find NATS.
    """
    _print(asyncio.run(_with_log(flags, None)), as_json)


def bump(
    flags: Mapping[str, Any],
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with the row.")],
    shard: Annotated[int | None, typer.Option("--shard", min=0, help="Only this shard, else all.")] = None,
    after: Annotated[
        int | None,
        typer.Option("--after", min=0, metavar="SEQUENCE", help="Last sequence that is surely as it was (the last)."),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option("--epoch", min=1, help="Its number, if the record was restored too: above all there ever were."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Begin a new epoch: after a restore, or a crash, whose sequences may be given out again.

    Ids up to the stream's last event stay valid. Clients that have seen more are told `epoch_reset`. Do it before
    anything is published again. Give it the flags, or the variables, that `ringmere serve` gets.
    """
    if after is not None and shard is None:
        raise InvalidParameter("after_needs_shard", "--after is a sequence of one stream: name its --shard")
    if not reason.strip():
        raise InvalidParameter("no_reason", "--reason: say why, for those who look at it later")
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InvalidParameter("not_confirmed", "a new epoch cannot be taken back: confirm it with --yes")
        where = "all shards" if shard is None else f"shard {shard}"
        typer.confirm(f"Begin a new epoch in {where}? It cannot be taken back.", abort=True, err=True)
    _print(asyncio.run(_with_log(flags, Bump(reason, shard, after, epoch))), as_json)


app.command("show")(with_settings(show, of_the_log))
app.command("bump")(with_settings(bump, of_the_log))


async def _with_log(flags: Mapping[str, Any], change: Bump | None) -> list[State]:
    """Return the state of all shards, after ``change`` if there is one."""
    # They need the NATS client, which no other client command should wait for.
    from ringmere.log.connect import Connection
    from ringmere.settings.derive import log_settings

    settings, options = reach(flags)
    connection = await Connection.open(options)
    try:
        return await _states(connection, log_settings(settings), change)
    finally:
        await connection.close()


async def _states(connection: Connection, settings: LogSettings, change: Bump | None) -> list[State]:
    from ringmere.log import api
    from ringmere.log.epoch_store import EpochStore
    from ringmere.log.shards import stream_name

    store = EpochStore(connection, settings)
    exists = await api.stream_info(connection, store.bucket.stream) is not None
    first = await store.read(0) if exists else None
    if first is None:
        raise LogRefused("there is no epoch record: no instance has ever served this log")
    shards = first[0].shards
    if change is not None:
        await _bump(store, shards, change)
    states = []
    for shard in range(shards):
        found, info = await store.read(shard), await api.stream_info(connection, stream_name(shard))
        if found is not None:
            created, tail = (info["created"], int(info["state"]["last_seq"])) if info else (None, None)
            states.append(State(shard, found[0], created, tail))
    return states


async def _bump(store: EpochStore, shards: int, change: Bump) -> None:
    if store.settings.shards != shards:
        raise InvalidParameter("wrong_shards", f"the log has {shards} shards: give --shards {shards}")
    if change.shard is not None and change.shard >= shards:
        raise InvalidParameter("no_such_shard", f"--shard: the log has the shards 0 to {shards - 1}")
    now = time.time_ns() // 1_000_000
    for shard in range(shards) if change.shard is None else [change.shard]:
        await store.bump(shard, change.reason, now, after=change.after, epoch=change.epoch)


def _print(states: list[State], as_json: bool) -> None:
    if as_json:
        for state in states:
            print(json.dumps(_object(state)))
        return
    console = Console(soft_wrap=True)
    for state in states:
        table = state.record.table
        stream = "no stream" if state.tail is None else f"stream of {state.created}, last sequence {state.tail}"
        console.print(f"shard {state.shard}: birth {table.birth}, {stream}", highlight=False)
        if state.created not in (None, state.record.created):
            console.print(f"  the record is of a stream of {state.record.created}", highlight=False)
        console.print(_rows(state.record))


def _rows(record: EpochRecord) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("  epoch", "from sequence", "", "added by hand"):
        table.add_column(title)
    notes = {note.epoch: note for note in record.notes}
    for row in record.table.rows:
        note = notes.get(row.epoch)
        words = f"{date_and_time(note.at_ms)}: {note.reason}" if note else ""
        table.add_row(f"  {row.epoch}", str(row.first), "void" if row.void else "", words)
    return table


def _object(state: State) -> dict[str, Any]:
    record = state.record
    notes = {note.epoch: {"at": note.at_ms, "reason": note.reason} for note in record.notes}
    rows = [
        {"epoch": row.epoch, "first": row.first, "void": row.void, **notes.get(row.epoch, {})}
        for row in record.table.rows
    ]
    return {
        "shard": state.shard,
        "birth": record.table.birth,
        "token": record.table.token,
        "recordCreated": record.created,
        "streamCreated": state.created,
        "lastSequence": state.tail,
        "rows": rows,
    }
