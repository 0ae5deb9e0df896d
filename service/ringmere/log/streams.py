"""Everything that a log needs in JetStream before it can serve (contract 1.2, 1.4, 1.6, 1.8)."""

from __future__ import annotations

from ringmere.log.connect import Connection
from ringmere.log.control import Control
from ringmere.log.epoch_store import EpochStore
from ringmere.log.provision import ShardInfo, ensure_shards, require_jetstream
from ringmere.log.purges import Purges
from ringmere.log.shape import StreamSettings
from ringmere.log.snapshots import prepare_snapshots

__all__ = ["ShardInfo", "StreamSettings", "ensure_streams"]


async def ensure_streams(connection: Connection, settings: StreamSettings) -> list[ShardInfo]:
    """Create, or check, the streams, their heads, the buckets of epochs, purges, snapshots and cancels.

    Several instances may do so at once. Raises ``LogRefused`` (JetStream off, server too old, no room) and
    ``StreamShapeDiffers`` (naming every difference, unless ``settings.reconcile`` lets it change them) when
    the process must not serve with what it found, ``LogUnavailable`` when a later try may go better.
    """
    account = await require_jetstream(connection)
    store = EpochStore(connection, settings)
    await store.prepare()
    await Purges(connection, settings).prepare()
    shards = await ensure_shards(connection, settings)
    await Control(connection, settings).prepare()
    # Last, so that what is left of the store is theirs and no stream of events becomes smaller for it.
    await prepare_snapshots(connection, settings, account)
    for info in shards:
        await store.ensure(info)
    return shards
