"""What settings say of appending to a cache."""

from __future__ import annotations

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.registry.append_kv import APPEND_KV


def test_lengths_may_be_beyond_the_room_and_below_none() -> None:
    settings, _ = APPEND_KV.configure({"batch": 3, "s": 32, "lengths": "-5,40,20"}, None)
    case = APPEND_KV.make(settings, 0)
    case.program.run()
    assert case.verify().ok
    with refused(tp.BindError, "as many as batch=3, of 32 bits, such as lengths=100,100,100"):
        APPEND_KV.make(settings | {"lengths": "1,2"}, 0)
