"""What orders accesses of several CTAs to global memory after a bulk store."""

from __future__ import annotations

import pytest

from tests.machine.happens_before.test_proxies import COPIES, bound
from tilepipe.check import check

WAIT = "cp.async.bulk.wait_group 0;"
OVER = (
    "The store is over when the thread that issued it has waited for it (cp.async.bulk.wait_group"
    " 0); then a thread that knows of that must release a flag, and warp 0 of CTA 1 must acquire"
    " that flag before its own access."
)


@pytest.mark.parametrize(
    ("wait", "says"),
    [
        (
            "cp.async.bulk.wait_group.read 0;",
            "  cp.async.bulk.wait_group.read 0 at <ptx>:27 waits until the store has read shared"
            " memory, and not until it has written global memory: write cp.async.bulk.wait_group 0."
            f" {OVER}\n",
        ),
        (
            "cp.async.bulk.wait_group 1;",
            "  cp.async.bulk.wait_group 1 at <ptx>:27 leaves the last group pending, and that is"
            " the one of the first access: write cp.async.bulk.wait_group 0 there, or wait again"
            f" before the second access. {OVER}\n",
        ),
        ("", f"  {OVER}\n"),
    ],
)
def test_a_flag_is_released_before_the_store_is_over(wait: str, says: str) -> None:
    """The flag is right: it is the wait before it that lacks, or that is for something else."""
    (fault,) = check(bound(COPIES.replace(WAIT, wait).format(writer="", reader=""))).faults
    assert fault.kind == "RaceError"
    assert says in fault.message
    assert "After it, a thread" not in fault.message
