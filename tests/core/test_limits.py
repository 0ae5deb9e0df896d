"""Limits: defaults are the contract's, and each says what it bounds."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields

from ringmere.core import limits
from ringmere.core.limits import MIB, Limits


def test_the_defaults_are_the_contracts() -> None:
    default = Limits()
    assert (default.max_queued, default.max_queued_bytes) == (256, 2 * MIB)
    assert (default.max_subscribers, default.turn_bytes, default.request_bytes) == (64, MIB, 8 * MIB)
    assert (default.heartbeat, default.write_timeout, default.evict_grace) == (15.0, 30.0, 5.0)
    assert (default.drain_grace, default.retry_ms, default.connect_deadline) == (20.0, 3000, 2.0)


def test_every_limit_has_a_docstring() -> None:
    (body,) = [node for node in ast.parse(inspect.getsource(limits)).body if isinstance(node, ast.ClassDef)]
    documented = sum(isinstance(after, ast.Expr) for after in body.body[1:])
    assert documented == len(fields(Limits))
