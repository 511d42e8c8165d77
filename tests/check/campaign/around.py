"""What roles do before and after the ring: a barrier's second life, a way round through global
memory, tickets and flags.
"""

from __future__ import annotations

from tests.check.campaign.lines import Line, Role, line
from tests.check.campaign.waiting import Waiting


class Around(Waiting):
    """Parts that are no part of the ring."""

    def again(self, role: Role) -> list[Line]:
        """An mbarrier is used, ends its life, and begins another in which it takes the bytes of a
        copy.
        """
        rows, cols = self.tile
        bar, spare = (
            self.barrier(self.name("twice"), 1),
            self.cell(self.name("spare"), cols, self.dtype, rows),
        )
        self.used |= {"again", "tma"}
        src, nbytes = self.source(), self.tile[0] * self.tile[1] * 4
        first = [line(f"{bar}.arrive()")]
        if self.r.random() < 0.5:
            first = [
                line(f"{bar}.expect_bytes({nbytes})", "expect"),
                line(f"ctx.tma_load({src}, (0, 0), {spare}, {bar})"),
            ]
        return [
            line(role.one, "", *first),
            line(f"{bar}.wait(0)", "wait"),
            line(role.meet, "meet"),
            line(
                role.one,
                "",
                line(f"{bar}.inval()", "inval"),
                line(f"{bar}.init(1)", "count"),
                line(
                    self.r.choice(("ctx.fence_proxy_async()", "ctx.fence_barrier_init()")),
                    "fence",
                    certain=True,
                ),
                line(f"{bar}.expect_bytes({nbytes})", "expect"),
                line(f"ctx.tma_load({src}, ({self.tile[0]}, 0), {spare}, {bar})"),
            ),
            line(role.meet, "meet"),
            line(f"{bar}.wait(0)", "wait"),
            *([line(f"ctx.assert_(ctx.load({spare}[0, 0]) == 10)")]),
        ]

    def round_trip(self, role: Role) -> list[Line]:
        """A row of global memory is written by ordinary stores and read by a copy, or the other way
        round.
        """
        trip, mine = self.tensor("trip", (self.places, 32), box=(1, 32)), self.mine(role)
        spare = self.cell(self.name("spare"))
        self.used |= {"global", "tma"}
        if self.r.random() < 0.6:
            bar = self.barrier(self.name("back"), 1)
            return [
                line(f"ctx.store(trip[{mine}, ctx.lane], 7)", "store"),
                line("ctx.fence_proxy_async({space})", "fence", certain=True, space='"global"'),
                line(role.meet, "meet"),
                line(
                    role.one,
                    "",
                    line(f"{bar}.expect_bytes(128)", "expect"),
                    line(f"ctx.tma_load({trip}, ({mine}, 0), {spare}, {bar})"),
                ),
                line(f"{bar}.wait(0)", "wait"),
                line(f"ctx.assert_(ctx.load({spare}[0, ctx.lane]) == 7)"),
            ]
        return [
            line(f"ctx.store({spare}[0, ctx.lane], 7)", "store"),
            line("ctx.fence_proxy_async()", "fence", certain=True),
            line(role.meet, "meet"),
            line(
                role.one,
                "",
                line(f"ctx.tma_store(trip, ({mine}, 0), {spare})"),
                line("ctx.tma_store_commit()", "commit"),
                line("ctx.tma_store_wait({pending})", "drain", pending=0),
            ),
            line(role.meet, "meet"),
            line(f"ctx.assert_(ctx.load(trip[{mine}, ctx.lane]) == 7)"),
        ]

    def elected(self, role: Role) -> list[Line]:
        """One elected lane stores a word, and reads it again."""
        self.used.add("elected")
        cell = self.cell(self.name("own"))
        if "global" in self.features and self.r.random() < 0.4:
            cell = self.tensor(self.name("own"), (1, 32))
            self.used.add("global")
        at = (
            f"0, {self.roles.index(role)}"
            if self.cluster == 1 or cell not in self.tensors
            else f"0, {self.mine(role)}"
        )
        return [
            line("{who}", "elect", line(f"ctx.store({cell}[{at}], 5)"), who=role.one),
            line(
                "{who}",
                "elected again",
                line(f"ctx.assert_(ctx.load({cell}[{at}]) == 5)"),
                certain=True,
                who=role.one,
            ),
        ]

    def tickets(self) -> None:
        """Two roles draw tickets, those of CTA 0; who has the first one differs."""
        self.used |= {"atomic"}
        self.tensor("tickets", (1,))
        for role in self.roles[:2]:
            cell, t = self.cell(self.name("drawn")), self.name("ticket")
            draws = [
                line(
                    role.one,
                    "",
                    line(f"{t} = ctx.atomic_add(tickets[0], 1)"),
                    line(f"ctx.store({cell}[0, 0], {t})", "store"),
                ),
                line(role.meet, "meet"),
                *self._decision(f"ctx.load({cell}[0, 0])", "0 1"),
            ]
            self.after[role.name] += (
                [line("with ctx.when(ctx.cta_rank == 0):", "", *draws)]
                if self.cluster > 1
                else draws
            )

    def flagged(self) -> None:
        """The maker says by a flag that it has written a word; the taker asks a few times, and
        waits for the barrier in any case.
        """
        self.used |= {"atomic", "global", "poll"}
        self.tensor("flag", (1,))
        self.tensor("word", (1,))
        done = self.barrier("done", 1)
        more, tries = self.name("more"), self.name("tries")
        self.after["make"].append(
            line(
                self.make.one,
                "elect",
                line("ctx.store(word[0], 3)", "store"),
                line("ctx.atomic_add(flag[0], 1)", "signal"),
                line(f"{done}.arrive()", "arrive"),
            )
        )
        ask = f"{more}.set((ctx.atomic_add(flag[0], 0) == 0) & ({tries} < {{limit}}))"
        loop = [line(f"{tries} += 1"), line(ask, "limit", limit=1)]
        if self.r.random() < 0.4:  # until the flag is there
            loop = [line(f"{more}.set(ctx.atomic_add(flag[0], 0) == 0)")]
        self.after["take"] += [
            line(
                self.take.one,
                "elect",
                line(f"{more} = ctx.var(True)"),
                line(f"{tries} = ctx.var(0)"),
                line(f"for _ in ctx.loop_while({more}):", "poll", *loop),
            ),
            line(f"{done}.wait(0)", "wait"),
            line("ctx.assert_(ctx.load(word[0]) == 3)"),
        ]

    def handed_on(self) -> None:
        """What the taker has noted is decided on by the maker."""
        where = self.notes.get("take", "none")
        if where not in ("shared", "global") or self.take.size != "one" or self.cluster > 1:
            return
        told = self.barrier("told", 32)
        self.after["take"].append(line(f"{told}.arrive()", "arrive"))
        self.after["make"].append(line(f"{told}.wait(0)", "wait"))
        base, row = ("seen_take", "0") if where == "shared" else ("seen", self.mine(self.take))
        self.after["make"] += self._decision(
            " + ".join(f"ctx.load({base}[{row}, {i}])" for i in range(self.steps))
        )

    def around(self) -> None:
        r, f = self.r, self.features
        ones = [role for role in self.roles[:2] if role.size == "one"]
        if "atomic" in f:
            if self.flags:
                self.flagged()
            else:
                self.tickets()
        if "again" in f:
            role = r.choice(self.roles[:2])
            self.after[role.name] += self.again(role)
        needed = "global" not in self.used or "tma" not in self.used
        if {"global", "tma"} <= f and ones and (needed or r.random() < 0.3):
            role = r.choice(ones)
            r.choice((self.before, self.after))[role.name] += self.round_trip(role)
        if "elected" in f and ones:
            role = r.choice(ones)
            self.after[role.name] += self.elected(role)
        if r.random() < 0.5:
            self.handed_on()
