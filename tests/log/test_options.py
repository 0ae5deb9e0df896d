"""Where the options come from: explicit values, variables, context files of the nats command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringmere.core.errors import LogRefused
from ringmere.embedded import EmbeddedServer
from ringmere.log.connect import Connection, ConnectOptions
from ringmere.log.options import DEFAULT_SERVER, from_environment


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose configuration directory is empty."""
    (tmp_path / "nats" / "context").mkdir(parents=True)
    return {"XDG_CONFIG_HOME": str(tmp_path), "HOME": "/nowhere"}


def write_context(home: dict[str, str], name: str, content: object, *, selected: bool = False) -> None:
    """Write a context as the nats command does."""
    directory = Path(home["XDG_CONFIG_HOME"]) / "nats"
    (directory / "context" / f"{name}.json").write_text(json.dumps(content))
    if selected:
        (directory / "context.txt").write_text(name + "\n")


def test_nothing_given_is_the_local_server(home: dict[str, str]) -> None:
    assert from_environment(home) == ConnectOptions(servers=(DEFAULT_SERVER,))
    assert from_environment({"HOME": "/nowhere"}).servers == (DEFAULT_SERVER,)


def test_variables_are_read_and_explicit_values_win(home: dict[str, str]) -> None:
    home |= {"NATS_URL": "nats://a:1, nats://b:2", "NATS_USER": "u", "NATS_PASSWORD": "p", "NATS_CA": "/ca.pem"}
    options = from_environment(home, user="me", token=None)
    assert options == ConnectOptions(servers=("nats://a:1", "nats://b:2"), user="me", password="p", tls_ca="/ca.pem")


def test_the_selected_context_is_used_when_no_address_is_given(home: dict[str, str]) -> None:
    context = {
        "description": "x", "url": "nats://c:1,nats://d:1", "token": "t", "user": "", "password": "",
        "creds": "~/x.creds", "nkey": "", "cert": "/c", "key": "/k", "ca": "/ca", "nsc": "",
        "jetstream_domain": "hub", "jetstream_api_prefix": "", "jetstream_event_prefix": "",
        "inbox_prefix": "_MINE", "tls_first": True,
    }  # fmt: skip
    write_context(home, "prod", context, selected=True)
    options = from_environment(home)
    assert options.servers == ("nats://c:1", "nats://d:1")
    assert (options.token, options.user, options.nkey) == ("t", None, None)
    assert options.creds is not None
    assert options.creds.endswith("/x.creds")
    assert "~" not in options.creds
    assert (options.tls_ca, options.tls_cert, options.tls_key, options.tls_first) == ("/ca", "/c", "/k", True)
    assert (options.domain, options.inbox_prefix) == ("hub", "_MINE")
    assert from_environment(home | {"NATS_URL": "nats://e:1"}).token is None
    assert from_environment(home, servers=("nats://e:1",)).servers == ("nats://e:1",)


def test_a_context_named_by_a_variable_gives_way_to_other_variables_one_named_by_a_flag_does_not(
    home: dict[str, str],
) -> None:
    write_context(home, "x", {"url": "nats://x:1", "user": "cu"})
    both = home | {"NATS_CONTEXT": "x", "NATS_URL": "nats://v:1"}
    assert from_environment(both).servers == ("nats://v:1",)
    assert from_environment(both).user == "cu"
    assert from_environment(both, context="x").servers == ("nats://x:1",)
    assert from_environment(both, context="x", servers=("nats://f:1",)).servers == ("nats://f:1",)


@pytest.mark.parametrize("name", ["missing", "../x", ".", "broken", "list", "nsc"])
def test_a_context_that_cannot_be_used_is_refused_with_its_reason(home: dict[str, str], name: str) -> None:
    directory = Path(home["XDG_CONFIG_HOME"]) / "nats" / "context"
    (directory / "broken.json").write_text("{")
    (directory / "list.json").write_text("[]")
    (directory / "nsc.json").write_text('{"nsc": "nsc://o/a/u"}')
    with pytest.raises(LogRefused, match="context"):
        from_environment(home, context=name)


def test_secrets_do_not_show_up_in_texts() -> None:
    options = ConnectOptions(servers=("nats://u:hush@h:1", "h2:2"), password="hush", token="hush")
    assert "hush" not in options.addresses()
    assert options.addresses() == "nats://h:1, nats://h2:2"
    assert "hush" not in repr(options)


async def test_a_context_file_leads_to_a_working_connection(home: dict[str, str], nats_server: EmbeddedServer) -> None:
    write_context(home, "local", {"url": nats_server.url}, selected=True)
    connection = await Connection.open(from_environment(home))
    await connection.flush()
    await connection.close()
