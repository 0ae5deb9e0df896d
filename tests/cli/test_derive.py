"""What the floors below are told is what the table says."""

from __future__ import annotations

import dataclasses
from typing import Any

from ringmere.core.limits import Limits
from ringmere.log.jetstream import LogSettings
from ringmere.settings import Settings, rows
from ringmere.settings.derive import coalesce_rules, connect_options, limits, log_settings


def changed() -> Settings:
    """Return settings of which every number and every choice differs from its default."""
    values: dict[str, Any] = {}
    for row in rows():
        if row.low is not None and row.high is not None:
            values[row.name] = row.low if row.default != row.low else row.high
        if row.choices:
            values[row.name] = next(choice for choice in row.choices if choice != row.default)
    return Settings(**values)


def test_every_limit_that_is_a_setting_reaches_the_hub() -> None:
    settings = changed()
    given = limits(settings, connections=10**9)
    for item in dataclasses.fields(Limits):
        if hasattr(settings, item.name):
            assert getattr(given, item.name) == getattr(settings, item.name) != getattr(Limits(), item.name), item.name


def test_connections_are_what_the_setting_and_the_file_limit_both_allow() -> None:
    assert limits(Settings(max_connections=50), connections=100).max_connections == 50
    assert limits(Settings(max_connections=500), connections=100).max_connections == 100
    assert limits(Settings(), connections=-6).max_connections == 1


def test_coalesce_rules_reach_the_hub_as_rules() -> None:
    assert not coalesce_rules(Settings())
    rules = coalesce_rules(Settings(coalesce=("chunk=/data",)))
    sse = b'id: 7\nevent: chunk\ndata: {"id":7,"v":1,"type":"chunk","data":"x","_meta":{"serverTimestamp":1}}\n\n'
    parts = rules.take_apart(sse, sse.index(b"\n\n") - sse.index(b"{"))
    assert parts is not None
    assert parts.text == b"x"


def test_every_setting_of_the_log_reaches_it() -> None:
    settings = dataclasses.replace(changed(), reconcile=True)
    given = log_settings(settings)
    for row in rows():
        if row.group == "log" and not hasattr(Limits(), row.name):
            value = getattr(given, row.name)
            assert value == getattr(settings, row.name) != getattr(LogSettings(), row.name), row.name


def test_the_log_that_is_not_told_otherwise_is_the_default_one() -> None:
    assert log_settings(Settings()) == LogSettings()


def test_the_embedded_server_wins_over_a_setting_and_a_setting_over_nats_own_variable() -> None:
    environ = {"NATS_URL": "nats://variable:4222"}
    settings = Settings(nats_url="nats://a:1,nats://b:2")
    assert connect_options(settings, environ, "nats://own:3").servers == ("nats://own:3",)
    assert connect_options(settings, environ, None).servers == ("nats://a:1", "nats://b:2")
    assert connect_options(Settings(), environ, None).servers == ("nats://variable:4222",)
    assert connect_options(Settings(), {}, None).servers == ("nats://127.0.0.1:4222",)


def test_who_we_are_at_nats_reaches_the_connection() -> None:
    given = {"creds": "c", "nkey": "n", "user": "u", "password": "p", "token": "t"}
    tls = {"tls_ca": "a", "tls_cert": "b", "tls_key": "k"}
    settings = Settings(**{f"nats_{name}": value for name, value in {**given, **tls}.items()})  # type: ignore[arg-type]
    options = connect_options(settings, {}, None)
    assert {name: getattr(options, name) for name in {**given, **tls}} == {**given, **tls}
