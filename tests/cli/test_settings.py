"""The settings table: what each source may say, which one wins, and what is refused with which words."""

from __future__ import annotations

import dataclasses

import pytest

from ringmere.core.limits import Limits
from ringmere.settings import SettingError, Settings, load, rows
from ringmere.settings.load import split_listen
from ringmere.settings.show import effective


def test_without_flags_and_variables_every_setting_has_its_default() -> None:
    loaded = load({}, {})
    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_default() -> None:
    loaded = load({"ring_size": "3"}, {"RINGMERE_RING_SIZE": "4", "RINGMERE_SHARDS": "2"})
    assert (loaded.settings.ring_size, loaded.settings.shards) == (3, 2)
    assert (loaded.sources["ring_size"], loaded.sources["shards"]) == ("flag", "environment")


def test_an_empty_variable_counts_as_not_given() -> None:
    assert load({}, {"RINGMERE_RING_SIZE": ""}).settings.ring_size == 8000


@pytest.mark.parametrize("name", ["ring_size", "shards", "replicas", "max_queued", "retry_ms"])
def test_every_bound_is_inclusive_and_one_beyond_it_is_refused(name: str) -> None:
    row = next(row for row in rows() if row.name == name)
    low, high = int(row.low or 0), int(row.high or 0)
    for value in (low, high):
        assert getattr(load({name: str(value)}, {}).settings, name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(SettingError) as refused:
            load({name: str(value)}, {})
        assert str(refused.value).startswith(f"{row.flag}: ")


def test_a_ring_of_more_than_a_million_is_a_typing_error_not_a_wish() -> None:
    assert load({"ring_size": "1000000"}, {}).settings.ring_size == 1_000_000
    with pytest.raises(SettingError, match=r"--ring-size: '1000001' is outside 1 … 1000000"):
        load({"ring_size": "1000001"}, {})


def test_coalesce_rules_come_one_a_flag_or_separated_by_commas_in_the_variable() -> None:
    rules = ("chunk=/data/update/content/text", "log=/data")
    assert load({"coalesce": list(rules)}, {}).settings.coalesce == rules
    assert load({}, {"RINGMERE_COALESCE": ", ".join(rules)}).settings.coalesce == rules


@pytest.mark.parametrize(
    "text", ["chunk", "chunk=/text", "session_closed=/data", "=/data", "chunk=/data/a,chunk=/data/b", "chunk=/data/~"]
)
def test_what_is_no_coalesce_rule_or_the_second_of_a_type_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="--coalesce"):
        load({"coalesce": [text]}, {})


def test_trusted_proxies_are_addresses_and_networks() -> None:
    assert load({"trusted_proxy": ["10.0.0.0/8", "::1"]}, {}).settings.trusted_proxy == ("10.0.0.0/8", "::1/128")
    assert load({}, {"RINGMERE_TRUSTED_PROXY": "10.0.0.1"}).settings.trusted_proxy == ("10.0.0.1/32",)


@pytest.mark.parametrize("text", ["proxy", "10.0.0.0/33", "10.0.0.1/8", "10.0.0"])
def test_what_is_no_network_is_refused_as_a_trusted_proxy(text: str) -> None:
    with pytest.raises(SettingError, match="--trusted-proxy"):
        load({"trusted_proxy": [text]}, {})


@pytest.mark.parametrize("text", ["", " ", "-1", "1e3", "1.5", "²", "٣", "0x10", "nan", "8000 events"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="--ring-size"):
        load({"ring_size": text}, {})


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("500ms", 0.5), ("1.5s", 1.5), ("10m", 600), ("1h", 3600), ("7d", 604800)]
)
def test_durations_take_units(text: str, seconds: float) -> None:
    assert load({"heartbeat": "1s", "head_ttl": "7d", "write_timeout": "1s", "drain_grace": "1"}, {})
    row = next(row for row in rows() if row.name == "log_ttl")
    assert row.kind.parse(text) == seconds


@pytest.mark.parametrize("text", ["1w", "-1", "inf", "nan", "1h30m", "9" * 400])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="RINGMERE_LOG_TTL"):
        load({}, {"RINGMERE_LOG_TTL": text})


def test_zero_is_taken_where_it_has_a_meaning_and_only_there() -> None:
    assert load({"log_ttl": "0", "head_ttl": "0", "max_stream_age": "0"}, {}).settings.log_ttl == 0
    with pytest.raises(SettingError, match="--heartbeat"):
        load({"heartbeat": "0"}, {})


@pytest.mark.parametrize(("text", "size"), [("65536", 65536), ("64KiB", 65536), ("2MiB", 2097152), ("1g", 1 << 30)])
def test_sizes_take_units(text: str, size: int) -> None:
    assert load({"max_queued_bytes": text}, {}).settings.max_queued_bytes == size


def test_a_value_that_is_not_among_the_choices_names_them() -> None:
    with pytest.raises(SettingError, match=r"--log-level: 'loud' is not one of debug, info, warning, error"):
        load({"log_level": "loud"}, {})


def test_origins_come_repeated_as_flags_or_with_commas_in_the_variable() -> None:
    expected = ("https://a.example", "https://b.example")
    assert load({"cors_origin": expected}, {}).settings.cors_origin == expected
    assert load({}, {"RINGMERE_CORS_ORIGIN": ", ".join(expected)}).settings.cors_origin == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), (":80", ("0.0.0.0", 80)), ("[::1]:65535", ("::1", 65535))],
)
def test_the_address_to_listen_on(text: str, expected: tuple[str, int]) -> None:
    assert split_listen(text) == expected


@pytest.mark.parametrize("text", ["", "8080", "host", "host:", "host:65536", "host:x", "::1:80", "host:-1"])
def test_what_is_no_address_to_listen_on_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="--listen"):
        split_listen(text)


def test_embedded_excludes_an_address_of_nats_and_copies() -> None:
    assert load({"embedded": True}, {"NATS_URL": "nats://elsewhere"}).settings.embedded
    for other in ({"nats_url": "nats://h"}, {"nats_context": "c"}, {"replicas": "3"}):
        with pytest.raises(SettingError, match="embedded"):
            load({"embedded": True, **other}, {})


def test_a_secret_has_no_flag_and_is_never_shown() -> None:
    row = next(row for row in rows() if row.name == "nats_password")
    assert row.flag is None
    loaded = load({"nats_url": "nats://me:hunter2@h1,nats://s3cr3t@h2"}, {"RINGMERE_NATS_PASSWORD": "swordfish"})
    shown = " ".join(str(item) for item in effective(loaded))
    assert "swordfish" not in shown
    assert "hunter2" not in shown
    assert "s3cr3t" not in shown
    assert "nats://me:***@h1,nats://***@h2" in shown


def test_a_misspelt_variable_is_told_and_foreign_ones_are_not() -> None:
    environ = {"RINGMERE_RINGSIZE": "3", "RINGMERE_PORT": "tcp://10.0.0.1:80", "RINGMERE_SERVER": "http://h"}
    assert load({}, environ).misspelt == {"RINGMERE_RINGSIZE": "RINGMERE_RING_SIZE"}


def test_a_setting_named_like_a_limit_takes_its_default_from_there() -> None:
    limits = {item.name: getattr(Limits(), item.name) for item in dataclasses.fields(Limits)}
    shared = {row.name: row.default for row in rows() if row.name in limits}
    assert shared
    assert shared == {name: limits[name] for name in shared}
