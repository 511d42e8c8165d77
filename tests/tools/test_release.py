"""The README as PyPI shows it."""

from __future__ import annotations

import importlib
import re
import sys
import types
from typing import Any

import pytest

from tools.docs.readme import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the hook, without hatchling, which only builds have."""
    name = "hatchling.metadata.plugin.interface"
    stub = types.ModuleType(name)
    stub.MetadataHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, stub)
    monkeypatch.delitem(sys.modules, "tools.release.readme_hook", raising=False)
    return importlib.import_module("tools.release.readme_hook")


def links(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", text)


def test_links_lead_to_the_version_that_is_released(hook: Any) -> None:
    url = "https://host/owner/tilepipe/blob/v0.1.0"
    shown = links(hook.readme(README, f"{url}/"))
    there = {
        link.removeprefix(f"{url}/").split("#")[0] for link in shown if link.startswith(f"{url}/")
    }
    assert {"docs/performance.md", "examples"} <= there
    assert [path for path in there if not (ROOT / path).exists()] == []
    assert [x for x in shown if not x.startswith(("https://", "#"))] == []


def test_without_an_address_no_link_leads_nowhere(hook: Any) -> None:
    text = hook.readme(README, None)
    assert "[docs/performance.md]" not in text
    assert "docs/performance.md" in text
    assert [x for x in links(text) if not x.startswith(("https://", "#"))] == []
    assert "<!--" not in text


def test_what_the_build_is_given(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = hook.Hook()
    made.root = str(ROOT)
    found: dict[str, Any] = {}
    monkeypatch.delenv(hook.VARIABLE, raising=False)
    made.update(found)
    assert found.keys() == {"readme"}
    assert found["readme"]["content-type"] == "text/markdown"
    monkeypatch.setenv(hook.VARIABLE, "https://host/x/")
    made.update(found)
    assert found["urls"]["Documentation"] == "https://host/x/docs/README.md"
