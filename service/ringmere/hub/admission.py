"""The way in: a slot, a channel that follows the session, a judged cursor (contract 3, 6.9)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ringmere.core.errors import Draining, LogUnavailable, SessionNotFound, SubscriberLimitExceeded
from ringmere.hub.channel import Channel
from ringmere.hub.due import Plan
from ringmere.hub.resume import plan_stream
from ringmere.hub.subscriber import SubscribeOptions, Subscriber

if TYPE_CHECKING:
    from ringmere.hub.hub import Hub

LIMIT_RETRY = 5.0
"""Seconds told to a reader beyond the limit (contract 6.9)."""


class Admission:
    """Counts slots and lets readers in. A slot is held from the first step until the reader has ended."""

    def __init__(self, hub: Hub, *, require_session: bool) -> None:
        self._hub = hub
        self.require_session = require_session
        self.slots = 0
        """Readers of all sessions, attached or not."""

    async def admit(self, session: str, options: SubscribeOptions) -> Subscriber:
        """Take a slot, judge the cursor, fix the point the stream starts at; raises as ``Hub.subscribe``."""
        self.check_open()
        channel = self._take_slot(session)
        try:
            async with asyncio.timeout(self._hub.limits.connect_deadline):
                await self.started(channel)
                if self.require_session and not await self.exists(channel):
                    raise SessionNotFound(f"session {session} is unknown")
                plan = await self._plan(channel, options)
            return self._enter(channel, options, plan)
        except BaseException as error:
            self._give_back(channel)
            if isinstance(error, TimeoutError):
                raise LogUnavailable("the log did not answer in time") from error
            raise

    def release(self, subscriber: Subscriber) -> None:
        """Take a reader's slot back: it has ended."""
        subscriber.channel.members.discard(subscriber)
        self._give_back(subscriber.channel)

    def check_open(self) -> None:
        """Raise ``Draining`` when nobody is let in any more."""
        if self._hub.draining:
            raise Draining("this instance is going away", 1.0)

    def _take_slot(self, session: str) -> Channel:
        self.take_connection()
        try:
            return self.take_place(session)
        except BaseException:
            self.slots -= 1
            raise

    def take_connection(self) -> None:
        """Take a slot of the instance; raises ``SubscriberLimitExceeded``."""
        if self.slots >= self._hub.limits.max_connections:
            raise SubscriberLimitExceeded("this instance has all the readers it may have", LIMIT_RETRY)
        self.slots += 1

    def take_place(self, session: str) -> Channel:
        """Take a slot of a session; raises ``SubscriberLimitExceeded`` and ``LogUnavailable``."""
        hub = self._hub
        channel = hub.channel(session)
        if channel.slots >= hub.limits.max_subscribers:
            raise SubscriberLimitExceeded(f"the session has {channel.slots} readers on this instance", LIMIT_RETRY)
        channel.slots += 1
        return channel

    def _give_back(self, channel: Channel) -> None:
        self.slots -= 1
        self.give_place(channel)

    def give_place(self, channel: Channel) -> None:
        """Give a session's slot back; its channel goes a while after the last one."""
        channel.slots -= 1
        if channel.slots == 0 and not channel.ended:
            self._hub.wheel.call_later(self._hub.limits.channel_linger, lambda: self._retire(channel))

    def _retire(self, channel: Channel) -> None:
        if channel.slots == 0:
            self._hub.discard(channel)

    async def started(self, channel: Channel) -> None:
        """Wait until the channel follows its session; one start serves all who wait."""
        if channel.started:
            return
        if channel.starting is None:
            channel.starting = asyncio.create_task(self._start(channel))
            channel.starting.add_done_callback(_look_at)
        starting = channel.starting
        await asyncio.wait([starting])
        if starting.cancelled():
            raise LogUnavailable("the session is not followed any more")
        starting.result()

    async def _start(self, channel: Channel) -> None:
        try:
            await channel.start()
        except BaseException:
            channel.starting = None
            self._hub.discard(channel)
            raise
        channel.starting = None

    async def exists(self, channel: Channel) -> bool:
        """Ask the leader about what the channel does not know: an event may be stored and still on its way here."""
        if channel.known or await self._hub.log.last(channel.session) is not None:
            return True
        return await self._hub.snapshots.look(channel.session) is not None

    async def _plan(self, channel: Channel, options: SubscribeOptions) -> Plan | None:
        """Judge a cursor; once more when the log was replaced meanwhile, for the judgement may be the old log's."""
        while True:
            table = channel.table
            plan = await plan_stream(channel, options)
            if channel.table is table:
                return plan

    def _enter(self, channel: Channel, options: SubscribeOptions, plan: Plan | None) -> Subscriber:
        self.check_open()
        if channel.ended:
            raise LogUnavailable("the session is not followed any more")
        if plan is None:
            subscriber = Subscriber(channel, options, Plan(0))
            subscriber.cancel()
            return subscriber
        if plan.verdict is not None:
            in_memory = plan.gap is None and channel.joinable(plan.position)
            self._hub.observer.resumed(channel.session, plan.verdict, "window" if in_memory else "log")
        subscriber = Subscriber(channel, options, plan)
        channel.members.add(subscriber)
        return subscriber


def _look_at(start: asyncio.Task[None]) -> None:
    """Take note of a failed start: those who still wait raise it, and nobody may be waiting any more."""
    if not start.cancelled():
        start.exception()
