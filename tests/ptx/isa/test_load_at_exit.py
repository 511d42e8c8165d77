"""A copy into shared memory that nothing waits for before the CTA exits."""

from __future__ import annotations

import numpy as np
import pytest

from tilepipe import ptx
from tilepipe.errors import ExitError

TEXT = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x) .reqntid 32 .reqnctapercluster CTAS {
    .reg .pred %p, %q; .reg .b32 %r<4>; .reg .b64 %x; .reg .b16 %both;
    .shared .align 128 .b8 tile[128];
    .shared .align 8 .b64 bar;
    ld.param.u64 %x, [x];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %cluster_ctarank;
    setp.eq.u32 %p, %r1, 0;
    @%p mbarrier.init.shared::cta.b64 [bar], 1;
    @%p fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
    setp.eq.and.u32 %p, %r2, 0, %p;
    mov.b16 %both, 3;
    LOAD
    // WAIT
    ret;
}
"""
LOAD = """@%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytesHOW
        [tile], [%x], 128, [bar]MASK;"""
OWN = LOAD.replace("HOW", "").replace("MASK", "")
MULTICAST = LOAD.replace("HOW", ".multicast::cluster").replace("MASK", ", %both")
WAIT = """
AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
    @!%q bra AGAIN;
"""


def launch(load: str, ctas: int, wait: str = "") -> ptx.Launch:
    text = TEXT.replace("LOAD", load).replace("CTAS", str(ctas)).replace("// WAIT", wait)
    return ptx.load(text).only().bind([np.zeros(32, np.float32)], grid=ctas)


def test_one_of_its_own_is_advice_in_practice_and_a_fault_under_the_strict_rules() -> None:
    verdict = launch(OWN, 1).check()
    assert verdict.ok
    (advice,) = verdict.advice
    assert advice.startswith("load at exit")
    assert "Wait for it, or do not issue it" in advice
    with pytest.raises(ExitError, match="strict rules, load at exit: the CTA exits while a copy"):
        launch(OWN, 1).run(rules="strict")


def test_one_by_a_peer_is_a_fault() -> None:
    verdict = launch(MULTICAST, 2).check()
    assert [fault.kind for fault in verdict.faults] == ["ExitError"]


def test_a_wait_for_it_is_enough() -> None:
    for load, ctas in ((OWN, 1), (MULTICAST, 2)):
        for rules in ("practice", "strict"):
            verdict = launch(load, ctas, WAIT).check(rules=rules)
            assert (verdict.verdict, list(verdict.advice)) == ("verified", [])
