"""``ringmere doctor --health``: the health check of a container, a service manager, or a script.

It runs every few seconds beside the service, so it loads next to nothing: no settings table, no NATS, no HTTP library.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from ringmere.cli.ask import TIMEOUT, Answer, ask
from ringmere.core.address import local_url, split_address

DEFAULT_LISTEN = "127.0.0.1:8080"
READY, LIVE = "/readyz", "/livez"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def is_health_check(arguments: Sequence[str]) -> bool:
    """Say whether a command line asks for this and nothing else."""
    return list(arguments[:1]) == ["doctor"] and "--health" in arguments and "--help" not in arguments


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what the command line behind ``ringmere doctor`` asks for. Raises ``ValueError``."""
    parser = _Parser("ringmere doctor --health", add_help=False, allow_abbrev=False)
    parser.add_argument("--health", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--server")
    parser.add_argument("--listen")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command line behind ``ringmere doctor`` and return its exit code."""
    try:
        given = parse(arguments)
    except ValueError as error:
        print(f"ringmere: {error}", file=sys.stderr)
        return 2
    return check(given.server, given.listen, environ, live=given.live, as_json=given.json)


def check(server: str | None, listen: str | None, environ: Mapping[str, str], *, live: bool, as_json: bool) -> int:
    """Ask one instance whether it is ready, or ``live``, and print a line; 0 is yes, 1 no, 2 a wrong address.

    Without ``server`` it is the instance on this machine that ``listen``, or ``RINGMERE_LISTEN``, describes.
    """
    path = LIVE if live else READY
    try:
        url = server or _own(listen or environ.get("RINGMERE_LISTEN") or DEFAULT_LISTEN)
        answer = ask(url, path, timeout=TIMEOUT)
    except ValueError as error:
        print(f"ringmere: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        return _tell(False, f"{url}{path}: {error.strerror or error}", as_json)
    return _tell(answer.status == 200, f"{url}{path}: {answer.status} {_status(answer)}", as_json)


def _own(listen: str) -> str:
    host, port = split_address(listen)
    if not port:
        raise ValueError(f"{listen}: which port was taken is not known here; give --server")
    return local_url(host, port)


def _status(answer: Answer) -> str:
    try:
        return str(json.loads(answer.body)["status"])
    except (ValueError, KeyError, TypeError):
        return ""


def _tell(good: bool, text: str, as_json: bool) -> int:
    level, text = "ok" if good else "bad", text.strip()
    print(json.dumps({"level": level, "code": "health", "text": text}) if as_json else f"{level} {text}")
    return 0 if good else 1
