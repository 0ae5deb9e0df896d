"""``ringmere doctor`` as a command: lines, exit codes, instances, the settings of serve."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ringmere.cli.instances import Seen, epochs, gateway, session_in
from ringmere.embedded import EmbeddedServer, free_port
from ringmere.log.findings import BAD, CODES, OK, WARN
from ringmere.log.shards import shard_of
from support.command import Done, ringmere
from support.configured import ROOT, configured
from support.gateway import gateway as running_gateway


async def doctor(*arguments: str) -> Done:
    return await ringmere("doctor", "--json", *arguments)


def not_ok(done: Done) -> list[tuple[str, str]]:
    return [(line["level"], line["code"]) for line in done.lines if line["level"] != OK]


async def test_a_running_installation_is_in_order_and_every_code_is_there(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "--ring-size", "50") as instance:
        arguments = ("--embedded", "--data-dir", str(tmp_path / "data"), "--server", instance.url)
        done = await doctor(*arguments, "--ring-size", "50")
        assert (done.code, not_ok(done), done.err) == (0, [], "")
        assert {line["code"] for line in done.lines} == set(CODES)
        assert {tuple(line) for line in done.lines} == {("level", "code", "about", "text", "todo", "final")}
        done = await ringmere("doctor", *arguments)
        assert done.code == 2
        assert re.search(
            r"^bad   stream_shape     RINGMERE_0: .*max_msgs_per_subject is 51, wanted 8001", done.out, re.M
        )
        assert "      → give the settings" in done.out
        assert re.search(r"^\d+ ok, 0 warn, 1 bad$", done.out.splitlines()[-1])


async def test_a_nats_that_is_not_there_is_1_and_wrong_credentials_are_2(tmp_path: Path) -> None:
    done = await doctor("--nats-url", f"nats://127.0.0.1:{free_port()}")
    assert (done.code, not_ok(done)) == (1, [(BAD, "connection")])
    async with configured(ROOT / "ops" / "nats" / "ringmere.conf", tmp_path) as server:
        done = await doctor("--nats-url", f"nats://gateway:wrong@127.0.0.1:{server.port}")
        assert (done.code, not_ok(done)) == (2, [(BAD, "connection")])
        assert "wrong" not in done.out
        done = await doctor("--nats-url", server.url("gateway"))
        assert (done.code, not_ok(done)) == (0, [(WARN, "stream")])
        assert server.violations() == set()
        done = await ringmere("doctor", "--json", "--nats-url", server.url("publisher"))
        assert done.code == 2
        assert not_ok(done) == [(BAD, "connection")]


async def test_settings_that_cannot_be_are_told_as_by_serve() -> None:
    done = await doctor("--shards", "0")
    assert (done.code, done.out) == (2, "")
    done = await doctor("--embedded", "--data-dir", "nowhere")
    assert (done.code, done.out) == (2, "")
    assert "nowhere" in done.err


async def test_instances_of_two_logs_are_told_apart(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path / "a", nats_url=nats_server.url) as first,
        running_gateway(tmp_path / "b", nats_url=nats_server.url) as second,
        running_gateway(tmp_path / "c") as stranger,
    ):
        where = ("--nats-url", nats_server.url, "--server", first.url)
        done = await doctor(*where, "--server", second.url)
        assert (done.code, not_ok(done)) == (0, [])
        done = await doctor(*where, "--server", stranger.url)
        assert (done.code, not_ok(done)) == (1, [(BAD, "gateway_epoch")])
        await second.stop()
        done = await doctor(*where, "--server", second.url)
        assert (done.code, not_ok(done)) == (1, [(BAD, "gateway_live")])


HEALTHY = {"version": "1", "status": "ok", "logDegraded": []}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Seen("u", 200, 200, HEALTHY, {}), []),
        (Seen("u", 404, 404, {}, {}), [(BAD, "gateway_live")]),
        (Seen("u", 200, 503, {**HEALTHY, "status": "draining"}, {}), [(BAD, "gateway_ready")]),
        (Seen("u", 200, 200, {**HEALTHY, "logDegraded": [1]}, {}), [(BAD, "gateway_ready")]),
        (Seen("u", 200, 200, {**HEALTHY, "version": "2"}, {}), [(WARN, "gateway_version")]),
    ],
)
def test_a_gateway_is_judged_by_what_it_says_of_itself(seen: Seen, expected: Any) -> None:
    assert [(each.level, each.code) for each in gateway(seen, "1") if each.level != OK] == expected


def test_one_epoch_everywhere_is_in_order_and_none_is_not_known() -> None:
    def level(*tokens: str | None, told: dict[int, str] | None = None) -> str:
        seen = [Seen(f"u{number}", 200, 200, HEALTHY, {0: token}) for number, token in enumerate(tokens)]
        [finding] = epochs(seen, told or {})
        return finding.level

    assert level("b-0", "b-0") == OK
    assert level("b-0", told={0: "b-0"}) == OK
    assert level("b-0", "b-1") == BAD
    assert level("b-0", told={0: "b-1"}) == BAD
    assert level("b-0", None) == WARN
    assert level(None) == WARN


def test_a_session_is_found_in_each_shard() -> None:
    assert [shard_of(session_in(shard, 7), 7) for shard in range(7)] == list(range(7))


def test_the_json_of_a_finding_is_one_object_of_plain_values() -> None:
    [finding] = epochs([Seen("u", 200, 200, HEALTHY, {0: "b-0"})], {})
    assert json.loads(json.dumps(finding.as_object()))["level"] == OK
