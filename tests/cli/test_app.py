"""Every wrong command line is one line and exit code 2; nothing is ever a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

from ringmere.cli import run

WRONG = {
    "a command that does not exist": (["dance"], "dance"),
    "an option that does not exist": (["serve", "--colour"], "--colour"),
    "no session": (["publish"], "session"),
    "a session id with a dot": (["publish", "a.b", "--type", "x"], "session id"),
    "an empty session id": (["tail", ""], "session id"),
    "data without a type": (["publish", "s", "--data", "1"], "--type"),
    "data that is no JSON": (["publish", "s", "--type", "x", "--data", "hello"], "--data is not JSON"),
    "data that is NaN": (["publish", "s", "--type", "x", "--data", "NaN"], "NaN"),
    "a reserved type": (["publish", "s", "--type", "replay_complete"], "reserved"),
    "a type with a line break": (["publish", "s", "--type", "a\nb"], "printable"),
    "one event and a file": (["publish", "s", "--type", "x", "--file", "f"], "--type is one event"),
    "a rate and a pace": (["publish", "s", "--file", "f", "--rate", "1", "--pace"], "exclude"),
    "a key with a blank": (["publish", "s", "--type", "x", "--key", "a b"], "idempotency key"),
    "a beginning that is no id": (["tail", "s", "--from", "-1"], "--from"),
    "a ring of none": (["serve", "--ring-size", "0"], "--ring-size"),
    "a ring too large": (["serve", "--ring-size", "1000001"], "1 … 1000000"),
    "no shards": (["serve", "--shards", "0"], "--shards"),
    "too many shards": (["serve", "--shards", "65"], "--shards"),
    "no address": (["serve", "--listen", "8080"], "HOST:PORT"),
    "a level that does not exist": (["serve", "--log-level", "loud"], "debug, info, warning, error"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_command_line_is_told_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = WRONG[name]
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("ringmere: ")
    assert expected in err


@pytest.mark.parametrize(
    "arguments",
    [["publish", "s", "--type", "x"], ["sessions", "ls"], ["sessions", "show", "s"]],
    ids=lambda arguments: arguments[0] + arguments[1],
)
def test_a_server_that_is_no_url_fails_with_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments, "--server", "not a url"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("ringmere: ")


def test_sessions_of_a_server_that_is_not_there_fail_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sessions", "ls", "--server", "http://127.0.0.1:9"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_wrong_variable_is_told_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RINGMERE_SHARDS", "many")
    assert run(["settings"]) == 2
    assert "RINGMERE_SHARDS: 'many' is not a whole number" in capsys.readouterr().err


def test_settings_say_where_each_value_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RINGMERE_LOG_TTL", "90m")
    assert run(["settings", "--json"]) == 0
    found = {item["name"]: item for item in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (found["log_ttl"]["value"], found["log_ttl"]["source"]) == ("90m", "environment")
    assert (found["ring_size"]["value"], found["ring_size"]["source"]) == ("8000", "default")


def test_settings_tell_of_a_misspelt_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RINGMERE_LOG_TTTL", "1h")
    assert run(["settings"]) == 0
    out, err = capsys.readouterr()
    assert "did you mean RINGMERE_LOG_TTL?" in err
    assert "--ring-size" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    assert run(["version", "--json"]) == 0
    text, line = capsys.readouterr().out.splitlines()
    assert text == f"ringmere {version('ringmere')}"
    assert json.loads(line) == {"version": version("ringmere")}


def test_without_a_command_there_is_help_and_no_error_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    out, err = capsys.readouterr()
    assert "serve" in out + err
    assert "ringmere: " not in err


def test_help_of_serve_has_a_flag_for_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--help"]) == 0
    assert "--ring-size" in capsys.readouterr().out


def test_a_reader_that_has_gone_is_no_error() -> None:
    command = f"{sys.executable} -m ringmere settings --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
