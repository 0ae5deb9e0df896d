"""The description of streams and subjects is the code's own names, and a whole AsyncAPI document."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from ringmere.core.event import CONTROL_TYPES, envelope
from ringmere.core.frames import event_frame
from ringmere.http.app import ROUTES
from ringmere.http.asyncapi import CHANNELS, CONTROL_DATA, MESSAGES, document
from ringmere.log.shards import degraded_subject, event_subject, live_subject, publish_subject
from support.doors import Gateway, Start

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "tests" / "foreign" / "node_modules" / "@asyncapi" / "specs" / "schemas" / "3.0.0-without-$id.json"


def filled(address: str) -> str:
    return re.sub(r"\{\w+\}", lambda place: {"{shard}": "3"}.get(place[0], "s1"), address)


def test_subjects_and_paths_are_those_of_the_code() -> None:
    addresses = {filled(address) for _, address, _ in CHANNELS.values()}
    for subject in (event_subject(3, "s1"), live_subject(3, "s1"), degraded_subject(3, "s1"), publish_subject("s1")):
        assert subject in addresses
    paths = {address for server, address, _ in CHANNELS.values() if server == "gateway"}
    assert {path.replace("{session}", "{id}") for path in paths} <= {path for _, path, _ in ROUTES}


def test_each_subject_of_the_permissions_is_described() -> None:
    text = (ROOT / "ops" / "nats" / "permissions.conf").read_text()
    allowed = set(re.findall(r'"(ringmere\.(?!notice)[\w.*]+)"', text))
    described = {re.sub(r"\{\w+\}", "*", address) for server, address, _ in CHANNELS.values() if server == "nats"}
    assert allowed
    assert allowed <= described


def test_every_control_frame_is_described_with_the_fields_of_the_protocol_page() -> None:
    assert set(CONTROL_DATA) == CONTROL_TYPES
    table = (ROOT / "service" / "PROTOCOL.md").read_text().split("**5.2 Control frames**")[1].split("\n\n")[1]
    for row in table.splitlines()[2:]:
        _, types, data, _ = row.split("|", 3)
        named = set(re.findall(r"`(\w+)`", data))
        for type in set(re.findall(r"`(\w+)`", types)) - {"stream_opened"}:
            assert set(CONTROL_DATA[type]["required"]) <= named, type


def test_every_reference_leads_somewhere() -> None:
    whole = document("0")

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if "$ref" in value else []
            return own + [found for item in value.values() for found in references(item)]
        return [found for item in value for found in references(item)] if isinstance(value, list) else []

    found = references(whole)
    assert found
    for reference in found:
        place: Any = whole
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    used = {reference.rpartition("/")[2] for reference in found if "/messages/" in reference}
    assert used == set(MESSAGES)


def test_an_event_as_readers_get_it_fits_its_description() -> None:
    made = envelope(b'{"type":"t","data":[1],"promptId":"p","_meta":{"k":1},"terminal":true}', 5, 1_700_000_000_000)
    data = event_frame(5, made).decode().split("\ndata: ")[1]
    jsonschema_rs.validate(MESSAGES["event"]["payload"], json.loads(data))


async def test_control_frames_that_are_sent_fit_their_descriptions(start: Start) -> None:
    gateway = await start(ring_size=2)
    await gateway.numbers("s1", 5)
    frames = await (await gateway.stream("s1", "?last_event_id=1")).take(4)
    controls = [frame for frame in frames if frame.id is None]
    assert [frame.type for frame in controls] == ["state_resync_required", "replay_complete"]
    for frame in controls:
        jsonschema_rs.validate(MESSAGES[str(frame.type)]["payload"], frame.json)


async def test_it_is_served(gateway: Gateway) -> None:
    answer = await gateway.get("/asyncapi.json")
    assert answer.status == 200
    assert answer.json == document(gateway.app.door.options.version)


@pytest.mark.skipif(not SCHEMA.exists(), reason="npm packages of tests/foreign are not installed")
def test_it_is_an_asyncapi_document() -> None:
    jsonschema_rs.validator_for(json.loads(SCHEMA.read_text())).validate(document("0"))
