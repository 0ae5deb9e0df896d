"""What becomes of readers when the log behind them is another one (contract 1.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringmere.core.cursor import EpochTable, Outcome, split_id
from ringmere.hub.attachment import Attachment
from ringmere.hub.due import Gap, Plan
from ringmere.hub.subscriber import Subscriber

if TYPE_CHECKING:
    from ringmere.hub.channel import Channel


class Place(NamedTuple):
    """What a reader had when the log changed: the last id it was given, how far it was, and the id that was there.

    A session that was added to a stream of many may be ahead of the point that the stream's cursor has.
    """

    last_id: int
    position: int
    reached_id: int


class Reached(NamedTuple):
    """The places of a channel's readers, and of the streams of many sessions that follow it."""

    readers: dict[Subscriber, Place]
    attachments: dict[Attachment, Place]


def reached_by(channel: Channel) -> Reached:
    """Return what everybody has of a session, by the table that the channel still counts by."""
    readers = {}
    for reader in channel.members:
        reader.settle()
        position = reader.reached
        last_id = channel.id_of(position) or reader.start_id or 0
        readers[reader] = Place(last_id, position or split_id(last_id)[1], last_id)
    attachments = {}
    for attachment in channel.attached.all:
        last_id = attachment.many.passage.points.ids[attachment.shard]
        position = attachment.reached
        attachments[attachment] = Place(last_id, position, channel.id_of(position))
    return Reached(readers, attachments)


def rewind(channel: Channel, reached: Reached) -> None:
    """Let everybody read on from the log, or be told that the last id is unknown now."""
    for reader, place in reached.readers.items():
        reader.rewind(_plan(channel.table, place))
    for attachment, place in reached.attachments.items():
        attachment.many.rebase(attachment, _plan(channel.table, place))


def _plan(table: EpochTable, place: Place) -> Plan:
    if place.last_id == 0:
        return Plan(0, whole_ring=True)
    if table.known(place.last_id):
        known = place.position if table.known(place.reached_id) else split_id(place.last_id)[1]
        return Plan(min(place.position, known))
    return Plan(0, Gap(Outcome.EPOCH_RESET, "epoch_mismatch"), whole_ring=True)
