"""The two rule sets that a run or a check can go by, and what only the strict one refuses.

"practice" is what shipped compilers rely on (CUTLASS and CuTe DSL, Triton, DeepGEMM); "strict" is the PTX ISA to the letter, in
which its silence counts against the kernel. A finding that only strict has is a fault there and advice in practice, but for those
that practice does not look for at all. docs/rules.md has this table with the reasons at length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tilepipe.errors import BindError, RaceError, SimFault

if TYPE_CHECKING:
    from tilepipe.ir.location import Loc
    from tilepipe.sim.machine import Machine

Rules = Literal["practice", "strict"]
RULE_SETS: tuple[Rules, ...] = ("practice", "strict")


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that the strict rules ask for and practice does not.

    Attributes:
        name: what messages and docs/rules.md call it. asks: what strict asks for, in one line.
        source: where the PTX ISA says so, or what it leaves unsaid. practice: "advice", or "silent" where it is not looked for.
    """

    name: str
    asks: str
    source: str
    practice: Literal["advice", "silent"] = "advice"


READER_FENCE = Rule(
    "reader-side fence",
    "fence.proxy.async is executed by every thread that made the ordinary access, before it hands over",
    "PTX ISA, Causality order: proxy-preserved base causality order has no clause for fence.proxy.async",
)
READ_REFILL = Rule(
    "read before refill",
    "fence.proxy.async between an ordinary read and the asynchronous write that refills what was read",
    "PTX ISA, Async Proxy: accesses through several proxies need a cross-proxy fence; its example of clusterlaunchcontrol.try_cancel"
    " fences a read",
    "silent",
)
INIT_FENCE = Rule(
    "mbarrier-init fence",
    "fence.mbarrier_init or fence.proxy.async by the initialising thread between the first mbarrier.init in a role and a copy that"
    " signals it",
    "CUDA C++ Programming Guide, Tensor Memory Access: a proxy fence follows the initialisation; Triton has bar.sync alone",
)
ALL_RULES = (READER_FENCE, READ_REFILL, INIT_FENCE)


def require_rules(given: object) -> Rules:
    """The rule set that an argument names.

    Raises:
        BindError: it names none.
    """
    for name in RULE_SETS:
        if isinstance(given, str) and given == name:
            return name
    raise BindError(
        f'rules= is "practice" (what shipped compilers rely on) or "strict" (the PTX ISA to the letter); got {given!r}. See docs/rules.md.'
    )


def finding(m: Machine, rule: Rule, text: str, loc: Loc, cure: str, error: type[SimFault] = RaceError) -> None:
    """What only the strict rules refuse: a fault under them, advice in practice.

    Args:
        text: what happened and where, without a full stop. cure: what to change, a sentence.

    Raises:
        error: the rules are strict.
    """
    if m.world.rules == "strict":
        raise error(f"strict rules, {rule.name}: {text}.\n  {cure}", loc)
    m.world.advise(f'{rule.name} (a fault with rules="strict"): {text}. {cure}')
