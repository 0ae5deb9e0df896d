"""Copy Redis streams into sessions, once or for as long as publishers still write to Redis.

    python ops/migrate/redis_streams.py --redis redis://127.0.0.1:6379 --match 'events:*' --server http://127.0.0.1:8080

The session is the key without what stands before the `*`. Each entry becomes an event: `type` and `data` are taken from
the fields of these names, `_meta` gets the entry's id as `redisId` and its time as `serverTimestamp`. It can be run
again, and killed, at any time: it goes on behind the newest entry that the session holds. The plan around it is
`service/docs/migrate-redis.md`. Needs `pip install redis`. Ends with 1 when an entry was skipped or something is away.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from typing import Any

import msgspec
import redis.asyncio
from redis.exceptions import RedisError

from ringmere.client.errors import ClientError, Refused
from ringmere.client.publish import Publisher
from ringmere.client.stream import Control, Event, follow
from ringmere.core.errors import InvalidSessionId
from ringmere.core.session import check_session_id

BATCH = 100
BLOCK_MS = 1000
"""How long one look at Redis waits; then new keys are looked for."""


class Copier:
    """Copies what is behind ``positions``, the id of the newest copied entry of each key."""

    def __init__(self, options: argparse.Namespace, source: redis.asyncio.Redis, publisher: Publisher) -> None:
        self.options = options
        self.source = source
        self.publisher = publisher
        self.prefix = options.match[:-1] if options.match.endswith("*") else ""
        self.renamed = dict(pair.split("=", 1) for pair in options.rename)
        self.positions: dict[bytes, bytes] = {}
        self.refused: set[bytes] = set()
        self.copied = self.skipped = 0

    async def run(self) -> None:
        """Copy until nothing is left, or with ``--follow`` for ever."""
        await self.find_keys()
        while True:
            found = await self.source.xread(self.positions, BATCH) if self.positions else []
            if not found and not self.options.follow:
                return
            if not found:
                await self.find_keys()
                found = await self.wait()
            for key, entries in found:
                await self.publish(self.session(key), [self.event(*entry) for entry in entries])
                self.positions[key] = entries[-1][0]

    async def wait(self) -> list[Any]:
        """Return what is added next, [] when nothing is for a while."""
        if self.positions:
            return list(await self.source.xread(self.positions, BATCH, block=BLOCK_MS))
        await asyncio.sleep(BLOCK_MS / 1000)
        return []

    async def find_keys(self) -> None:
        """Take up the keys that are new."""
        async for key in self.source.scan_iter(match=self.options.match, count=1000, _type="stream"):
            if key in self.positions or key in self.refused:
                continue
            try:
                self.positions[key] = await self.newest_copied(self.session(key))
            except InvalidSessionId as error:
                self.refused.add(key)
                self.skip(f"{key!r}: {error}")

    def session(self, key: bytes) -> str:
        """Return the session that a key becomes."""
        return check_session_id(key.decode(errors="replace").removeprefix(self.prefix))

    async def newest_copied(self, session: str) -> bytes:
        """Return the id of the newest entry that the session holds a copy of."""
        newest = b"0-0"
        async with follow(self.options.server, session, 0) as stream:
            async for item in stream:
                if isinstance(item, Event):
                    newest = str(item.envelope.get("_meta", {}).get("redisId", "")).encode() or newest
                elif isinstance(item, Control) and item.type == "replay_complete":
                    break
        return newest

    async def publish(self, session: str, rows: list[dict[str, Any]]) -> None:
        """Store events in their order, all or none at a time; one that is refused for good is skipped, and told."""
        while rows:
            try:
                await self.publisher.publish_batch(session, rows, atomic=True)
            except Refused as refused:
                # A batch with one bad row is refused whole; the problem names the row.
                at = refused.problem.get("index", 0 if len(rows) == 1 else None)
                if isinstance(at, int):
                    self.skip(f"{session} {rows.pop(at)['_meta']['redisId']}: {refused}")
                elif refused.status == 413:
                    await self.publish(session, rows[: len(rows) // 2])
                    del rows[: len(rows) // 2]
                else:
                    raise
            else:
                self.copied += len(rows)
                return

    def event(self, entry: bytes, fields: dict[bytes, bytes]) -> dict[str, Any]:
        """Return the event of an entry; without a field for its data, all other fields are its data."""
        entry_id = entry.decode()
        texts = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
        type_ = texts.pop(self.options.type_field, self.options.default_type)
        data: Any = texts
        if self.options.data_field in texts:
            data = texts[self.options.data_field]
            with contextlib.suppress(msgspec.DecodeError):  # What is no JSON stays a text.
                data = msgspec.json.decode(data)
        meta = {"redisId": entry_id, "serverTimestamp": int(entry_id.partition("-")[0])}
        event = {"type": self.renamed.get(type_, type_), "data": data, "_meta": meta, "key": f"redis/{entry_id}"}
        return event | ({"terminal": True} if type_ in self.options.terminal else {})

    def skip(self, what: str) -> None:
        """Say what is not copied."""
        self.skipped += 1
        print(f"skipped {what}", file=sys.stderr)


async def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis", default="redis://127.0.0.1:6379", help="where the streams are")
    parser.add_argument("--match", default="events:*", help="their keys: one key, or the beginning of many and *")
    parser.add_argument("--server", default="http://127.0.0.1:8080", help="a gateway")
    parser.add_argument("--type-field", default="type")
    parser.add_argument("--default-type", default="message", help="of an entry without that field")
    parser.add_argument("--data-field", default="data", help="holds JSON; what is none is taken as a text")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="another name for a type")
    parser.add_argument("--terminal", action="append", default=[], metavar="TYPE", help="a type that ends its session")
    parser.add_argument("--follow", action="store_true", help="go on with what is added, until Ctrl-C")
    options = parser.parse_args()
    async with redis.asyncio.from_url(options.redis, protocol=2) as source, Publisher(options.server) as publisher:
        copier = Copier(options, source, publisher)
        try:
            await copier.run()
        except (RedisError, ClientError) as error:
            copier.skip(f"the rest: {error}")
        finally:
            print(f"{copier.copied} copied, {copier.skipped} skipped, {len(copier.positions)} streams", flush=True)
    return 1 if copier.skipped else 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except KeyboardInterrupt:
        sys.exit(0)
