"""What the machine is given of a kernel's barriers."""

from __future__ import annotations

import pytest

from tests.support.build import Builder
from tilepipe.machine.program import RingSide
from tilepipe.sim.codegen.module import compile_kernel


@pytest.mark.parametrize(
    ("names", "sides"),
    [
        (("a.full", "a.empty"), [RingSide("a", True), RingSide("a", False)]),
        (("a.full", "b.empty"), [RingSide("", True), RingSide("", False)]),
        (("q_full", "empty"), [RingSide("", True), RingSide("", False)]),
        (("notempty", "beautyfull"), [None, None]),
        (("a.full.done", "carefull"), [None, None]),
    ],
)
def test_a_barrier_is_the_side_of_a_ring_by_the_last_word_of_its_name(
    names: tuple[str, ...], sides: list[RingSide | None]
) -> None:
    b = Builder()
    for name in names:
        b.barriers(name, 1, 1)
    b.setup_done()
    b.role("one", warps=1)
    assert [plan.side for plan in compile_kernel(b.finished()).program.barriers] == sides
