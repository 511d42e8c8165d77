"""What every message about a kernel of PTX keeps to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tilepipe.errors import SimFault
from tilepipe.ptx import Launch


@pytest.fixture(autouse=True)
def no_roles_in_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults and advice of all runs of the tests of this folder speak of warps: a role is a word of
    this project's own language.
    """
    run: Callable[..., int] = Launch.run

    def checked(launch: Launch, *args: Any, **options: Any) -> int:
        said: list[str] = []
        try:
            return run(launch, *args, **options)
        except SimFault as fault:
            said.append(str(fault))
            raise
        finally:
            said += launch.advice
            assert [text for text in said if re.search(r"\broles?\b", text)] == []

    monkeypatch.setattr(Launch, "run", checked)
