"""Counts arrivals on pipeline barriers while a kernel is traced, and derives the count given to
mbarrier.init.

The rule: the count of a full or empty barrier is the number of arrivals that one acquired stage
causes on it, made by all agents that take the stage, from every CTA that targets it, summed over
the roles that acquire its stages. Arrivals are counted per handle, not per arrive op: a release in
the loop and the flush after the loop are two sites of one arrival. All sites of a role must agree.
A count that is too high deadlocks; one that is too low lets the other side in early.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilepipe.errors import CountError
from tilepipe.ir.expressions import Expr
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import BarrierArray
from tilepipe.ir.program import Role
from tilepipe.ir.static_evaluation import evaluate, thread_env

Received = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Arrivals caused by one stage: `received[c, a]` on CTA c's copy of the barrier, made by agent
    a of the role.

    `known` is False where a predicate or a target is not a function of lane, warp and CTA rank.
    """

    received: Received
    known: bool = True

    def __add__(self, other: Arrivals) -> Arrivals:
        return Arrivals(self.received + other.received, self.known and other.known)

    def __mul__(self, times: int) -> Arrivals:
        return Arrivals(self.received * times, self.known)

    def same(self, other: Arrivals) -> bool:
        """True if both reach the same CTAs from the same agents."""
        return self.known == other.known and bool(np.array_equal(self.received, other.received))

    @property
    def none(self) -> bool:
        """True if there is known to be no arrival."""
        return self.known and not self.received.any()

    @property
    def per_stage(self) -> int:
        """The most arrivals that one CTA's barrier gets from the whole role."""
        return int(self.received.sum(axis=1).max())


def count_arrivals(
    role: Role,
    cluster_size: int,
    active: npt.NDArray[np.bool_] | None,
    each: int | None,
    target: Expr | None,
    mask: Expr | None = None,
) -> Arrivals:
    """The arrivals on every CTA's copy of a barrier when `active` threads arrive `each` times on
    the copy in CTA `target` (None: their own), or on the copies in the CTAs of `mask`.
    """
    shape = (cluster_size, role.agents, role.agent_threads)
    received = np.zeros((cluster_size, role.agents), dtype=np.int64)
    env = thread_env(role, cluster_size)
    to = env["cta_rank"] if target is None else evaluate(target, env)
    masks = None if mask is None or to is None else evaluate(mask, env)
    if active is None or to is None or each is None or (masks is None and mask is not None):
        return Arrivals(received, known=False)
    reached = 1 << to if masks is None else masks
    reached = np.broadcast_to(reached, shape)
    for cta in range(cluster_size):
        received[cta] = (active & ((reached >> cta & 1) != 0)).sum(axis=(0, 2)) * each
    return Arrivals(received)


@dataclass(eq=False)
class Site:
    """Arrivals that each stage acquired at `loc` causes. `shared`: every agent of the role takes
    every stage; else they take turns.
    """

    role: Role
    loc: Loc
    arrivals: Arrivals
    shared: bool


@dataclass(eq=False)
class Account:
    """What is known about the arrivals on one barrier array.

    Attributes:
        typed: the count that the user gave.
        loose: the line of an arrival outside any handle, which makes the count underivable.
        flat: the pipeline has no handles; every arrival is the only one of its role in a phase.
    """

    array: BarrierArray
    side: str
    typed: int | None = None
    sites: list[Site] = field(default_factory=list)
    loose: Loc | None = None
    flat: bool = False


class Ledger:
    """The accounts of one trace."""

    def __init__(self) -> None:
        self.accounts: dict[BarrierArray, Account] = {}

    def open(
        self, array: BarrierArray, side: str, typed: int | None, *, flat: bool = False
    ) -> None:
        """Starts counting for an array; `side`: which side arrives there, for messages."""
        self.accounts[array] = Account(array, side, typed, flat=flat)

    def loose(self, array: BarrierArray, role: Role, loc: Loc, arrivals: Arrivals) -> None:
        """Records an arrival that belongs to no handle.

        Raises:
            CountError: the pipeline has no handles, and another line of the role causes other
                arrivals.
        """
        account = self.accounts.get(array)
        if account is None:
            return
        if account.flat:
            self.record(array, role, loc, arrivals)
        elif account.loose is None:
            account.loose = loc

    def record(
        self, array: BarrierArray, role: Role, loc: Loc, arrivals: Arrivals, shared: bool = True
    ) -> None:
        """Records the arrivals of one stage, acquired at `loc`.

        Raises:
            CountError: another stage of the role causes different arrivals.
        """
        account = self.accounts.get(array)
        if account is None:
            return
        for site in account.sites:
            if site.role is role and not site.arrivals.same(arrivals):
                raise CountError(
                    f"role '{role.name}' arrives {site.arrivals.per_stage} times on '{array.name}'"
                    f" for a stage {'signalled' if account.flat else 'taken'} at {site.loc.short},"
                    f" but {arrivals.per_stage} times for one"
                    f" {'signalled' if account.flat else 'taken'} here; every stage must cause the"
                    " same number of arrivals",
                    loc,
                )
        if not any(site.role is role for site in account.sites):
            account.sites.append(Site(role, loc, arrivals, shared))

    def settle(self, waited_on: Collection[BarrierArray]) -> None:
        """Gives every array its count; an array without arrivals and waits gets 1.

        Raises:
            CountError: a typed count contradicts the derived one, or there is neither.
        """
        for account in self.accounts.values():
            unused = (
                account.typed is None
                and not account.sites
                and account.loose is None
                and account.array not in waited_on
            )
            account.array.count = 1 if unused else _settle(account)


def _settle(account: Account) -> int:
    array, typed = account.array, account.typed
    known = account.loose is None and all(site.arrivals.known for site in account.sites)
    if not known:
        if typed is not None:
            return typed
        line = account.loose or next(site.loc for site in account.sites if not site.arrivals.known)
        raise CountError(
            f"the arrival count of '{array.name}' cannot be derived: {line.short} arrives outside a"
            " stage handle, or under a condition that is not a function of lane, warp and CTA rank."
            f" Give the count yourself ({account.side}_arrivals=...).",
            line,
        )
    totals = [_total(site) for site in account.sites]
    derived = sum(totals)
    terms = (
        " + ".join(
            f"{_term(site)} (role '{site.role.name}', {site.loc.short})" for site in account.sites
        )
        or "none"
    )
    if derived == 0:
        if typed is not None:
            return typed
        raise CountError(
            f"no role arrives on '{array.name}', so a wait on it would never pass."
            f" {_MISSING[account.side, account.flat]}",
            array.loc,
        )
    if typed is not None and typed != derived:
        consequence = (
            "waits would never pass"
            if typed > derived
            else "phases would complete before all have arrived"
        )
        raise CountError(
            f"'{array.name}' is given a count of {typed}, but each phase gets {derived} arrivals:"
            f" {terms}. With {typed}, {consequence}.",
            array.loc,
        )
    return derived


# (side, whether the pipeline has no handles) -> what is missing where the side never arrives
_MISSING = {
    ("producer", False): "Its producer must announce what it loads (`expect_bytes`), arrive, or"
    " commit.",
    ("producer", True): "Its producer must announce what it loads (`get_tile(e=1)`,"
    " `get_k(..., e=1)`), arrive, or commit.",
    ("epilogue", False): "Each epilogue thread must signal that it has finished with tensor memory:"
    " signal_complete().",
    ("consumer", False): "Its consumer must release what it has waited for (`release`), arrive, or"
    " commit its MMAs.",
    ("consumer", True): "Its consumer must release what it has waited for (`release`, `release_k`,"
    " `release_v`), arrive, or commit its MMAs.",
}


def _total(site: Site) -> int:
    received = site.arrivals.received
    per_cta = received.sum(axis=1) if site.shared else received.max(axis=1)
    distinct = set(per_cta[per_cta > 0].tolist())
    if len(distinct) > 1:
        raise CountError(
            "the CTAs of a cluster get different numbers of arrivals from one stage, by rank"
            f" {per_cta.tolist()}; one count cannot be right for all",
            site.loc,
        )
    return int(per_cta.max(initial=0))


def _term(site: Site) -> str:
    received = site.arrivals.received
    ctas = received.shape[0]
    agents = received.shape[1]
    total = _total(site)
    takers = agents if site.shared else 1
    unit = "warpgroups" if site.role.is_warpgroup else "warps"
    if total % takers == 0 and takers > 1:
        text = f"{total // takers} × {takers} {unit}"
        return f"{text} = {total}" if ctas == 1 else f"{text} = {total} from {ctas} CTAs"
    return str(total)
