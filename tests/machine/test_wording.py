"""What messages call the instructions that they advise: the PTX name, or what the front end
says.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machine.byte_program import Launch, Variant
from tilepipe import machine
from tilepipe.errors import RaceError
from tilepipe.machine.clusters import one_after_another
from tilepipe.machine.wording import PTX
from tilepipe.sim.wording import TRACER

TEXTS = {path: path.read_text("utf-8") for path in Path(machine.__path__[0]).rglob("*.py")}
ASKED = {
    name
    for text in TEXTS.values()
    for name in re.findall(r"""\bwords(?:\[|\.get\(\s*)['"]([^'"]+)['"]""", text)
}


def test_the_machine_advises_in_the_front_end_s_words() -> None:
    for path, text in TEXTS.items():
        assert "ctx." not in text, path


def test_every_name_has_a_word_in_this_project_s_language() -> None:
    assert TRACER.keys() >= ASKED
    everything = "".join(TEXTS.values())
    assert [name for name in TRACER if f'"{name}"' not in everything and name not in ASKED] == []


def test_a_name_without_a_word_is_that_of_the_ptx_isa() -> None:
    assert PTX["fence.proxy.async.shared::cta"] == "fence.proxy.async.shared::cta"
    launch = Launch(Variant(without=frozenset({"proxy fence"})))
    with pytest.raises(RaceError, match=r"must execute fence\.proxy\.async\.shared::cta after the"):
        one_after_another(launch.world(None), [0], None, lambda m: None)
