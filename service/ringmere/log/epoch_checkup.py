"""An epoch record judged against its stream (contract 1.2). Pure."""

from __future__ import annotations

from typing import Any

from ringmere.core.errors import LogRefused
from ringmere.log.epoch_record import METADATA_KEY, EpochRecord, decode
from ringmere.log.findings import Finding, bad, ok, warn
from ringmere.log.shards import stream_name

_START = "start an instance anew: it puts that right"


def epoch_record(shard: int, info: Any | None, record: EpochRecord | None, shards: int) -> Finding:
    """Judge a shard's record; ``info`` is what the leader says of the stream, None when there is no stream."""
    name = stream_name(shard)
    if record is None:
        return bad("epoch_record", name, "there is none", f"{_START}, from the copy in the stream if there is one")
    if record.shards != shards:
        text = f"made for {record.shards} shards, {shards} are asked for"
        return bad("epoch_record", name, text, f"give --shards {record.shards}: it is fixed at birth", final=True)
    newest = record.table.newest
    text = f"epoch {newest.epoch} since sequence {newest.first}, birth {record.table.birth}"
    if info is None:
        return ok("epoch_record", name, text)
    if info["created"] != record.created:
        text = f"of a stream made {record.created}; this one was made {info['created']}"
        return warn(
            "epoch_record", name, text, "instances that run add a row within seconds: run it again, or start one"
        )
    tail = int(info["state"]["last_seq"])
    if tail < newest.first - 1:
        return bad(
            "epoch_record",
            name,
            f"{text}, but the stream ends at {tail}: it has lost its end",
            "`ringmere epoch bump --reason …` before anything is published, unless instances run and add the row",
        )
    return _copy(name, info, record, text)


def _copy(name: str, info: Any, record: EpochRecord, text: str) -> Finding:
    copied = (info["config"].get("metadata") or {}).get(METADATA_KEY)
    try:
        copy = decode(copied) if copied else None
    except LogRefused:
        copy = None
    if copy is None or copy.table != record.table:
        return warn("epoch_record", name, f"{text}; the copy in the stream's metadata is another, or missing", _START)
    return ok("epoch_record", name, text)
