"""The page's files: complete, and under a policy that lets no foreign code run."""

from __future__ import annotations

import re

from ringmere.http.page import FILES, _content
from support.doors import Gateway


async def test_obs_3_every_file_is_served_with_a_strict_policy(gateway: Gateway) -> None:
    for path, (_, content_type) in FILES.items():
        answer = await gateway.get(path)
        assert (answer.status, answer.headers["content-type"]) == (200, content_type)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_obs_3_no_file_makes_markup_of_text_or_holds_inline_code() -> None:
    texts = {name: _content(name).decode() for name, _ in FILES.values()}
    for name, text in texts.items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|javascript:", text), name
    page = texts["index.html"]
    assert not re.search(r"\son\w+=|<style|style=", page)
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]


def test_what_a_file_refers_to_is_served() -> None:
    for name, _ in FILES.values():
        for path in re.findall(r'(?:src|href|from)[= ]"(/[^"]*)"', _content(name).decode()):
            assert path in FILES, f"{name} refers to {path}"
