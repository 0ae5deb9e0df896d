"""Where values come from: the flag, else the variable, else the default; each is checked against its row."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringmere.core.address import split_address
from ringmere.settings.kinds import SWITCH, SettingError
from ringmere.settings.table import Row, Settings, rows


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings and, by name, where each came from: ``flag``, ``environment`` or ``default``."""

    settings: Settings
    sources: Mapping[str, str]
    misspelt: Mapping[str, str]
    """Variables that are no setting, but nearly: the variable and the one that was probably meant."""


def load(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Loaded:
    """Return the settings that ``flags`` (texts by setting name, None for not given) and ``environ`` spell.

    Raises :class:`SettingError` for the first value that is not allowed.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for row in rows():
        given, label, source = _given(row, flags, environ)
        sources[row.name] = source
        values[row.name] = row.default if given is None else _checked(row, given, label)
    _check_listen(values["listen"])
    _check_together(values)
    return Loaded(Settings(**values), sources, _misspelt(environ))


def _misspelt(environ: Mapping[str, str]) -> dict[str, str]:
    """Find near misses only: Kubernetes itself sets ``RINGMERE_PORT`` and more beside a service of this name."""
    known = [row.variable for row in rows()]
    found = {}
    for name in environ:
        if name.startswith("RINGMERE_") and name not in known:
            for close in difflib.get_close_matches(name, known, n=1, cutoff=0.9):
                found[name] = close
    return found


def _given(row: Row, flags: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[Any, str, str]:
    flag = flags.get(row.name)
    if flag is not None and flag != ():
        return flag, row.flag or row.name, "flag"
    text = environ.get(row.variable)
    if text is not None and text != "":
        return text, row.variable, "environment"
    return None, row.name, "default"


def _checked(row: Row, given: Any, label: str) -> Any:
    """Return the value of one row, or raise with its label, what was given and what is allowed."""
    if row.kind.many and not isinstance(given, str):
        given = ",".join(given)
    if row.kind is SWITCH and isinstance(given, bool):
        return given
    try:
        value = row.kind.parse(given)
    except ValueError as error:
        raise SettingError(f"{label}: {_quoted(row, given)} is not {error}") from None
    if row.choices and value not in row.choices:
        raise SettingError(f"{label}: {_quoted(row, given)} is not one of {', '.join(row.choices)}")
    if (row.zero is not None and value == 0) or _inside(row, value):
        return value
    zero = f", or 0 ({row.zero})" if row.zero else ""
    raise SettingError(f"{label}: {_quoted(row, given)} is outside {allowed(row)}{zero}")


def _inside(row: Row, value: Any) -> bool:
    return (row.low is None or value >= row.low) and (row.high is None or value <= row.high)


def _quoted(row: Row, given: Any) -> str:
    return "the value" if row.secret else repr(given)


def allowed(row: Row) -> str:
    """Return the row's range as people write it: ``1s … 366d``."""
    return f"{row.kind.show(row.low)} … {row.kind.show(row.high)}"


def split_listen(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``[IPv6]:PORT`` or ``:PORT`` (all interfaces)."""
    try:
        return split_address(text)
    except ValueError as error:
        raise SettingError(f"--listen: {error}") from None


def _check_listen(text: str) -> None:
    split_listen(text)


def _check_together(values: Mapping[str, Any]) -> None:
    """Refuse combinations that cannot work."""
    if values["embedded"] and values["replicas"] > 1:
        raise SettingError("--replicas: the embedded NATS server is one node, so replicas must be 1")
    if values["embedded"] and (values["nats_url"] or values["nats_context"]):
        raise SettingError(
            "--embedded: the embedded NATS server has its own address; leave out --nats-url and --nats-context"
        )
    if values["schemas_strict"] and not values["schemas"]:
        raise SettingError("--schemas-strict: there are no types without --schemas")
    if bool(values["nats_tls_cert"]) != bool(values["nats_tls_key"]):
        raise SettingError("--nats-tls-cert and --nats-tls-key go together")
