"""A tcgen05.commit whose arrival nothing waits for before the CTA exits."""

from __future__ import annotations

import pytest

from tilepipe import ptx
from tilepipe.check import check
from tilepipe.errors import ExitError

TEXT = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k() .reqntid 32 {
    .reg .pred %p; .reg .b32 %b, %r;
    .shared .align 8 .b64 bar;
    mov.u32 %b, bar;
    mov.u32 %r, %tid.x;
    setp.ne.u32 %p, %r, 0;
    @%p bra OUT;
    mbarrier.init.shared::cta.b64 [%b], 1;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%b];
WAIT:
OUT:
    ret;
}
"""
WAIT = """
    .reg .pred %q;
AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%b], 0;
    @!%q bra AGAIN;
"""


def test_it_is_advice_in_practice_and_a_fault_under_the_strict_rules() -> None:
    launch = ptx.load(TEXT).only().bind([], grid=1)
    verdict = check(launch)
    assert verdict.ok
    (advice,) = verdict.advice
    assert advice.startswith("commit at exit")
    assert "Let a warp of this CTA wait for phase 0 of the mbarrier" in advice
    with pytest.raises(ExitError, match="strict rules, commit at exit: the CTA exits while"):
        launch.run(rules="strict")


def test_a_wait_for_it_is_enough() -> None:
    text = TEXT.replace("WAIT:", WAIT)
    for rules in ("practice", "strict"):
        verdict = check(ptx.load(text).only().bind([], grid=1), rules=rules)
        assert (verdict.ok, verdict.advice) == (True, [])
