"""Answers of tests: where a role notes them, by which ways they go round, and who decides by
them.
"""

from __future__ import annotations

from tests.check.campaign.lines import Line, Role, line
from tests.check.campaign.pieces import Pieces

NEVER = 99  # what no sum of answers is


class Answers(Pieces):
    """Notes of answers."""

    def early(self, role: Role) -> None:
        """Before the ring, a role asks whether phase 0 is complete, and notes the answer; behind
        the ring, when phases have gone by and all but the answer is alike again, it asks something
        else, and decides.
        """
        self.used.add("peek")
        self.asked.add(role.name)
        ended, answer = self.barrier(self.name("ended"), 1), self.name("early")
        self.before["make"].append(line(self.make.one, "", line(f"{ended}.arrive()", "arrive")))
        self.before[role.name] += [
            line(f"{answer} = full[0].try_wait({{phase}})", "test", phase=0),
            *self.note(role, answer, "0"),
        ]
        behind = self.decide(role)
        self.after[role.name] = [
            line(f"{self.name('late')} = {ended}.try_wait(0)", "test"),
            line(f"{ended}.wait(0)", "wait"),
            *behind,
            *self.after[role.name],
        ]

    def note(self, role: Role, answer: str, at: str = "i") -> list[Line]:
        """Notes an answer of a test, the `at`-th."""
        if role.name not in self.notes:
            self.notes[role.name] = self._begin_notes(role)
        weight = f"{at} + 1"
        match self.notes[role.name]:
            case "minus":
                return (
                    [line(f"seen.set(ctx.select({answer}, -1, -2))", "note")] if at == "0" else []
                )
            case "local":
                return [line(f"seen += ctx.select({answer}, {weight}, 0)", "note")]
            case "shared" | "bulk":
                return [
                    line(
                        role.one,
                        "",
                        line(
                            f"ctx.store(seen_{role.name}[0, {at}], ctx.select({answer},"
                            f" {weight}, 0))",
                            "note",
                        ),
                    )
                ]
            case "global":
                return [
                    line(
                        role.one,
                        "",
                        line(
                            f"ctx.store(seen[{self.mine(role)}, {at}], ctx.select({answer},"
                            f" {weight}, 0))",
                            "note",
                        ),
                    )
                ]
            case "wide":
                return [
                    line(
                        role.one,
                        "",
                        line(
                            f"ctx.store(seen_{role.name}[0, {at}], ctx.select({answer},"
                            f" {weight}, 0))",
                            "note",
                        ),
                    )
                ]
            case "wide global":
                return [
                    line(
                        role.one,
                        "",
                        line(
                            f"ctx.store(kept[0, {at}], ctx.select({answer}, {weight}, 0))", "note"
                        ),
                    )
                ]
        return []

    def _begin_notes(self, role: Role) -> str:
        r, f = self.r, self.features
        choices = ["minus", "shared"] if role.name in self.asked else ["local", "shared"]
        if "global" in f:
            choices += ["global", "global"]
        if "tma" in f:
            choices += ["bulk", "bulk"]
        other = self.take if role is self.make else self.make
        if other.size == "group" and role.name != "also" and self.cluster == 1:
            choices += ["wide"] * 3 + ["wide global"] * 3 * ("global" in f)
        where = r.choice(choices)
        before = self.before[role.name]
        match where:
            case "local" | "minus":
                before.append(line("seen = ctx.var(0)"))
            case "shared" | "bulk":
                cell = self.cell(f"seen_{role.name}")
                before.append(
                    line(
                        f"ctx.store({cell}[0, ctx.lane], 0)"
                        if role.size == "one"
                        else f"ctx.store({cell}[0, 0], 0)"
                    )
                )
                before.append(line(role.meet, "meet"))
            case "global":
                self.used.add("global")
                self.tensor("seen", (self.places, 32))
            case "wide":
                cell = self.cell(f"seen_{role.name}", 8, "float32", 64)
                zero = line(f"ctx.store({cell}[ctx.lane + half, column], 0)")
                before += [
                    line("for half in (0, 32):", "", line("for column in range(8):", "", zero)),
                    line(role.meet, "meet"),
                ]
            case "wide global":
                self.used.add("global")
                self.tensor("kept", (64, 8), "float32")
        if where == "bulk":
            self.used.add("tma")
            self.tensor("noted", (self.places, 32), box=(1, 32))
        return where

    def reach(self, role: Role) -> str:
        """What the sum of a role's notes can be."""
        return "0 1" if role.name in self.asked else "1 2 3"

    def decide(self, role: Role) -> list[Line]:
        """After the ring: what was noted is read, and decided on."""
        where = self.notes.get(role.name, "none")
        total = " + ".join(f"ctx.load({{}}[{{}}, {i}])" for i in range(self.steps))

        def of(base: str, row: str) -> str:
            return total.replace("{}[{}", f"{base}[{row}")

        match where:
            case "local":
                return self._decision("seen.get()")
            case "minus":
                return self._decision("seen.get()", "-1 -2")
            case "shared":
                return [
                    line(role.meet, "meet"),
                    *self._decision(of(f"seen_{role.name}", "0"), self.reach(role)),
                ]
            case "global":
                return [
                    line(role.meet, "meet"),
                    *self._decision(of("seen", self.mine(role)), self.reach(role)),
                ]
            case "bulk":
                got, bar = self.cell(self.name("got")), self.barrier(self.name("back"), 1)
                return [
                    line("ctx.fence_proxy_async()", "fence", certain=True),
                    line(role.meet, "meet"),
                    line(
                        role.one,
                        "",
                        line(f"ctx.tma_store(noted, ({self.mine(role)}, 0), seen_{role.name})"),
                        line("ctx.tma_store_commit()", "commit"),
                        line("ctx.tma_store_wait({pending})", "drain", pending=0),
                        line(f"{bar}.expect_bytes(128)", "expect"),
                        line(f"ctx.tma_load(noted, ({self.mine(role)}, 0), {got}, {bar})"),
                    ),
                    line(f"{bar}.wait(0)", "wait", certain=True),
                    *self._decision(of(got, "0"), self.reach(role)),
                ]
            case "wide" | "wide global":
                return self._decided_by_group(role, where)
        return []

    def _decision(self, value: str, reach: str = "1 2 3") -> list[Line]:
        """What no answers lead to. `reach`: what some may lead to, by which a mistake is
        planted.
        """
        name = self.name("total")
        head = line(f'{name} = ctx.let({value}, "{name}")')
        if self.r.random() < 0.7:
            return [
                head,
                line(f"ctx.assert_({name} != {{never}})", "decide", never=NEVER, reach=reach),
            ]
        if "stuck" not in self.barriers:
            self.barriers.add("stuck")
            self.barrier("stuck", 1)
        return [
            head,
            line(
                f"with ctx.when({name} == {{never}}):",
                "decide",
                line("stuck.wait(0)"),
                never=NEVER,
                reach=reach,
            ),
        ]

    def _decided_by_group(self, role: Role, where: str) -> list[Line]:
        """What a warp has noted, a warpgroup takes into a fragment, and decides on."""
        other = self.take if role is self.make else self.make
        self.used.add("fragment")
        told, got = self.barrier(self.name("told"), 1), self.name("taken")
        load = [
            line(f'{got} = ctx.fragment(shape=(64, 8), dtype="float32")'),
            line(f"{got}.load(seen_{role.name})"),
        ]
        if where == "wide global":
            load = [line(f"{got} = ctx.load_global(kept, (0, 0), (64, 8))")]
        self.after[other.name] += [
            line(f"{told}.wait(0)", "wait"),
            *load,
            *self._by_fragment(other, got, self.reach(role)),
        ]
        return [line(role.meet, "meet"), line(role.one, "", line(f"{told}.arrive()", "arrive"))]

    def _by_fragment(self, role: Role, fragment: str, reach: str) -> list[Line]:
        """What is in a fragment is decided on as it is, or element by element behind a tile."""
        if self.r.random() < 0.4:
            vote = f"with ctx.when(({fragment} == {{never}}).any()):"
            stop = line("ctx.assert_(ctx.lane < 0)")
            return [
                line(
                    "with ctx.per_warp():",
                    "",
                    line(vote, "decide", stop, never=NEVER, reach=reach.removeprefix("0 ")),
                )
            ]
        tile = self.cell(self.name("spilt"), 8, "float32", 64)
        total = " + ".join(f"ctx.load({tile}[0, {i}])" for i in range(self.steps))
        return [
            line(f"ctx.store({tile}, {fragment})"),
            line(role.meet, "meet"),
            *self._decision(total, reach),
        ]
