"""Kernels that are right by construction, made from features drawn at random.

Each is a ring of slots from a role "make" to a role "take", perhaps to another one, "also". What
the features add is how the roles wait (tests, loops that poll, with or without giving up), what
they move through the slots and how, where answers of tests are noted and who decides by them, and
what is done before and after the ring.
"""

from __future__ import annotations

from random import Random

from tests.check.campaign.around import Around
from tests.check.campaign.features import TESTING, draw
from tests.check.campaign.lines import Kernel, Line, Role, line


class Skeleton(Around):
    """Makes one kernel: the ring, and all of it."""

    def spread(self) -> dict[tuple[str, str], set[str]]:
        """(role, barrier) -> how it waits there."""
        sites = {(role.name, "empty" if role is self.make else "full"): role for role in self.roles}
        how: dict[tuple[str, str], set[str]] = {site: set() for site in sites}
        singles = [site for site, role in sites.items() if role.size == "one"]
        for feature in TESTING:
            if feature not in self.features or (feature == "poll" and self.flags):
                continue
            ones = [role for role in self.takers if role.size == "one"]
            if feature == "peek" and ones and self.begins:
                self.early(self.r.choice(ones))
                continue
            free = (
                [site for site, role in sites.items() if role.size != "four"]
                if feature == "peek"
                else singles
            )
            chosen = [self.r.choice(free)]
            if self.r.random() < 0.15 and self.cluster == 1:
                chosen.append(self.r.choice(free))
            for site in chosen:
                if feature == "counter":
                    how[site].discard("poll")
                how[site].add(feature)
        return how

    def loop(self, body: list[Line]) -> Line:
        return line(
            f"for i in {'range' if self.unrolled else 'ctx.range'}({{steps}}):",
            "loop",
            *body,
            steps=self.steps,
        )

    def arrival(self, role: Role, bar: str, index: str) -> tuple[list[Line], int]:
        """A role arrives on a barrier; also the number of its arrivals."""
        both = self.payload == "multicast" and bar == "empty"
        remote = both or (self.cluster > 1 and self.payload != "copy")
        call = "{bar}[{index}].arrive_cluster({peer})" if remote else "{bar}[{index}].arrive()"
        # On CTA 1 first: when CTA 0, which issues the copies, sees its phase complete, that of CTA
        # 1 is so, too.
        peers = ["1", "0"] if both else ["1 - ctx.cta_rank"]
        arrive = [line(call, "arrive", bar=bar, index=index, peer=peer) for peer in peers]
        if self.r.random() < 0.4:
            return arrive, role.threads
        return [line(role.meet, "meet"), line(role.one, "elect", *arrive)], 1

    def fills(self, how: set[str]) -> tuple[list[Line], int]:
        """What the maker does with a slot, and the count of the full barrier."""
        index = f"i % {self.stages}"
        wait = self.waits(self.make, "empty", index, f"(i // {self.stages} + 1) % 2", how)
        slot = f"slots[{index}]" + (".on(1 - ctx.cta_rank)" if self.cluster > 1 else "")
        value = "10 * i"
        if self.payload in ("copy", "multicast"):
            self.used.add("tma")
            rows = self.tile[0]
            src, nbytes = self.source(), self.tile[0] * self.tile[1] * 4
            load = line(
                f"ctx.tma_load({src}, ({rows} * i, 0), slots[{{index}}], full[{{index}}])",
                "copy",
                index=index,
            )
            if self.payload == "multicast":
                load = line(
                    "with ctx.when(ctx.cta_rank == 0):",
                    "",
                    line(
                        f"ctx.tma_load({src}, ({rows} * i, 0), slots[{{index}}], full[{{index}}],"
                        " multicast=3)",
                        "copy",
                        index=index,
                    ),
                )
            expect = line(
                "full[{index}].expect_bytes({bytes})", "expect", index=index, bytes=nbytes
            )
            # The warps of the role wait each for itself, and what one lane issues ends the phase
            # that they wait for.
            meet = [] if self.make.size == "one" else [line(self.make.meet, "meet")]
            return [*wait, *meet, line(self.make.one, "elect", expect, load)], 1
        if self.payload == "fragment":
            self.used.add("fragment")
            fill = [
                line(
                    f"mine.fill({value} * 1.0)" if self.unrolled else f"mine.fill(({value}) * 1.0)"
                ),
                line(f"ctx.store({slot}, mine)"),
            ]
            self.before["make"].append(line('mine = ctx.fragment(shape=(64, 8), dtype="float32")'))
        elif self.wide:
            lane = "ctx.lane" if self.make.size == "one" else "ctx.thread % 64"
            fill = [line(f"ctx.store({slot}[{lane}, 0], {value})", "store")]
            if self.make.size != "one":
                fill = [line("with ctx.when(ctx.thread < 64):", "", *fill)]
        else:
            lane = "ctx.lane" if self.make.size == "one" else "ctx.lane % 8 + 8 * ctx.warp"
            fill = [line(f"ctx.store({slot}[0, {lane}], {value})", "store")]
            if self.make.size == "four":
                fill = [line("with ctx.when(ctx.lane < 8):", "", *fill)]
        if "global" in self.features and "global" not in self.used and self.r.random() < 0.6:
            self.used.add("global")
            self.tensor("beside", (self.places * self.steps, 1 if self.make.size == "one" else 4))
            column = "0" if self.make.size == "one" else "ctx.warp"
            fill.append(
                line(
                    "with ctx.elect_one():",
                    "",
                    line(f"ctx.store(beside[{self.beside(False)}, {column}], {value})", "store"),
                )
            )
        if "store" in self.reads:
            self.reader_fences = self.r.random() < 0.3
            if not self.reader_fences and self.cluster > 1:  # the slot is the peer's
                fill.append(
                    line("ctx.fence_proxy_async({space})", "fence", certain=True, space='"cluster"')
                )
            elif not self.reader_fences:
                fill.append(line("ctx.fence_proxy_async({space})", "fence", certain=True, space=""))
        arrive, count = self.arrival(self.make, "full", index)
        return [*wait, *fill, *arrive], count

    def beside(self, taken: bool) -> str:
        """The row of the item in the tensor beside the slots: a CTA's own, or, where CTAs fill each
        other's slots, the other's.
        """
        if self.cluster == 1:
            return "i"
        other = taken and self.payload in ("word", "fragment")
        return f"{self.steps} * {'(1 - ctx.cta_rank)' if other else 'ctx.cta_rank'} + i"

    def takes(self, role: Role, how: set[str]) -> tuple[list[Line], int]:
        """What a taker does with a slot, and how often it arrives on the empty barrier."""
        index = f"i % {self.stages}"
        wait = self.waits(role, "full", index, f"i // {self.stages} % 2", how)
        use: list[Line] = []
        x = self.name("x")
        if role is self.take and "store" in self.reads:
            self.used.add("tma")
            rows = self.tile[0]
            out = self.tensor(
                "out", (rows * self.cluster * self.steps, self.tile[1]), self.dtype, box=self.tile
            )
            at = (
                f"({rows} * ({self.steps} * ctx.cta_rank + i), 0)"
                if self.cluster > 1
                else f"({rows} * i, 0)"
            )
            if self.reader_fences:
                use += [
                    line("ctx.fence_proxy_async()", "fence", certain=True),
                    line(role.meet, "meet"),
                ]
            use.append(
                line(
                    role.one,
                    "elect",
                    line(f"ctx.tma_store({out}, {at}, slots[{{index}}])", "store", index=index),
                    line("ctx.tma_store_commit()", "commit"),
                    line("ctx.tma_store_wait({pending}, read=True)", "drain", pending=0),
                )
            )
            if self.r.random() < 0.5:
                use.append(line(role.meet, "meet"))
            self.after[role.name].append(
                line("{who}", "elected again", line("ctx.tma_store_wait(0)"), who=role.one)
            )
        elif role.size == "group" and self.payload in ("fragment", "copy", "multicast"):
            self.used.add("fragment")
            self.before[role.name].append(
                line('got = ctx.fragment(shape=(64, 8), dtype="float32")')
            )
            use += [
                line("got.load(slots[{index}])", "load", index=index),
                line(
                    "with ctx.per_warp():",
                    "",
                    line(
                        "with ctx.when((got != 10.0 * i).any()):",
                        "",
                        line("ctx.assert_(ctx.lane < 0)"),
                    ),
                ),
            ]
        elif self.wide:
            lane = "ctx.lane" if role.size == "one" else "ctx.thread % 32"
            use += [
                line(f"{x} = ctx.load(slots[{{index}}][{lane}, 0])", "load", index=index),
                line(f"ctx.assert_({x} == 10.0 * i)"),
            ]
        else:
            use += [
                line(f"{x} = ctx.load(slots[{{index}}][0, ctx.lane])", "load", index=index),
                line(f"ctx.assert_({x} == 10 * i)"),
            ]
        if "beside" in self.tensors and role is self.take:
            y = self.name("y")
            use += [
                line(f"{y} = ctx.load(beside[{self.beside(True)}, 0])", "load"),
                line(f"ctx.assert_({y} == 10 * i)"),
            ]
        arrive, count = self.arrival(role, "empty", index)
        if "store" in self.reads and role is self.take and arrive[-1].kind == "arrive":
            # The lane that waited for the store's read is the elected one: the others free the slot
            # behind a meeting.
            arrive.insert(0, line(role.meet, "meet"))
        return [*wait, *use, *arrive], count

    def made(self) -> Kernel:
        r, f = self.r, self.features
        storable = self.payload in ("copy", "multicast", "fragment") or (
            self.payload == "word" and not self.wide
        )
        self.reads |= {"store"} if "tma" in f and storable and r.random() < 0.4 else set()
        rows, cols = self.tile
        self.setup.append(
            line(
                f"slots = ctx.smem(({rows}, {cols}), tp.{self.dtype}, count={self.stages},"
                ' swizzle=0, name="slots")'
            )
        )
        how = self.spread()
        fill, full = self.fills(how["make", "empty"])
        takes = {role.name: self.takes(role, how[role.name, "full"]) for role in self.takers}
        empty = sum(count for _, count in takes.values()) * (
            2 if self.payload == "multicast" else 1
        )
        self.setup += [
            line(f'full = tp.SMemArray(ctx, tp.SharedMemBarrier, {self.stages}, "full")'),
            line(f'empty = tp.SMemArray(ctx, tp.SharedMemBarrier, {self.stages}, "empty")'),
            line(
                f"for s in range({self.stages}):",
                "",
                line("full[s].init({count})", "count", count=full),
                line("empty[s].init({count})", "count", count=empty),
            ),
        ]
        decided = {
            role.name: self.decide(role) for role in self.roles if role.name not in self.asked
        }
        self.around()
        for role in self.roles:
            body = fill if role is self.make else takes[role.name][0]
            role.body += [
                *self.before[role.name],
                self.loop(body),
                *decided.get(role.name, []),
                *self.after[role.name],
            ]
            if self.cluster > 1:
                role.body += [
                    line("ctx.cluster_arrive()", "cluster"),
                    line("ctx.cluster_wait()", "cluster"),
                ]
        return Kernel(
            frozenset(self.used), self.setup, self.roles, list(self.tensors.values()), self.cluster
        )


def skeleton(r: Random, required: frozenset[str] = frozenset()) -> Kernel:
    """A kernel that is right by construction, with the features `required` in it, and others."""
    while True:
        kernel = Skeleton(r, draw(r, required)).made()
        if required <= kernel.features:
            return kernel
