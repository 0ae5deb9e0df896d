"""The bench runs from end to end, and its load reader sees every kind of fault it is there to count."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ops.bench.rig import build_tools

ROOT = Path(__file__).resolve().parents[2]


def _event(n: int, id: int) -> bytes:
    return b'id: %d\nevent: t\ndata: {"id":%d,"v":1,"type":"t","data":{"n":%d,"ts":%d,"pad":""}}\n\n' % (
        id,
        id,
        n,
        time.monotonic_ns(),
    )


def _read_with_load_reader(body: bytes, pieces: int, events: int) -> dict[str, Any]:
    """Serve ``body`` to one reader in HTTP chunks and writes that cut it anywhere, and return its report."""
    size = len(body) // pieces + 1
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    wire = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.recv(4096)
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                for at in range(0, len(head + wire), 37):
                    connection.sendall((head + wire)[at : at + 37])

        server = threading.Thread(target=serve)
        server.start()
        command = [build_tools().reader, "--port", str(listener.getsockname()[1]), "--readers", "1"]
        command += ["--sessions", "1", "--events", str(events), "--limit", "20"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            lines = reader.stdout.readlines()
        server.join()
    report: dict[str, Any] = json.loads(lines[-1])
    return report


def _faults(report: dict[str, Any]) -> dict[str, int]:
    return {key: report[key] for key in ("events", "lost", "duplicated", "reordered", "id_disorder", "incomplete")}


def test_the_load_reader_finds_nothing_in_a_complete_stream_however_it_is_cut() -> None:
    body = b": ok\n\n" + b"".join(_event(n, 10 * n) for n in range(1, 101))
    for pieces in (1, 3, 50, 1000):
        report = _read_with_load_reader(body, pieces, 100)
        assert _faults(report) == {
            "events": 100,
            "lost": 0,
            "duplicated": 0,
            "reordered": 0,
            "id_disorder": 0,
            "incomplete": 0,
        }
        assert report["p99_ms"] < 20_000


def test_the_load_reader_counts_what_is_lost_twice_late_and_missing_at_the_end() -> None:
    order = [1, 2, 5, 4, 5, 7]
    body = b"".join(_event(n, 100 + index) for index, n in enumerate(order))
    report = _read_with_load_reader(body + _event(8, 1), 7, 10)
    assert _faults(report) == {
        "events": 7,
        "lost": 2 + 2,
        "duplicated": 1,
        "reordered": 1,
        "id_disorder": 1,
        "incomplete": 1,
    }


def test_the_load_reader_reports_control_frames_with_a_sample() -> None:
    frame = b'event: client_evicted\ndata: {"v":1,"type":"client_evicted","data":{"reason":"queue_overflow"}}\n\n'
    report = _read_with_load_reader(_event(1, 1) + frame, 1, 2)
    assert report["frames"]["client_evicted"] == 1
    assert "queue_overflow" in report["samples"][0]


@pytest.mark.timeout(300)
def test_the_bench_measures_both_gateways_and_nothing_is_lost(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    command = [sys.executable, "-m", "ops.bench", "--quick", "--out", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    table = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| ") and "× |" in line]
    assert len(table) >= 9, done.stdout


@pytest.mark.timeout(120)
def test_the_bench_of_lists_finds_every_session_once() -> None:
    command = [sys.executable, "-m", "ops.bench.listing", "--sessions", "1200", "--repeats", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert "| walk in pages of 1,000 | 2 |" in done.stdout
