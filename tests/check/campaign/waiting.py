"""How a role waits for a phase: at once, after a test, in a loop of tests, in one that gives up."""

from __future__ import annotations

from typing import Any

from tests.check.campaign.answers import Answers
from tests.check.campaign.lines import Line, Role, line


class Waiting(Answers):
    """Waits, and what of the answers becomes of it."""

    def waits(self, role: Role, bar: str, index: str, phase: str, how: set[str]) -> list[Line]:
        """Waits for a phase; `how`: with a test before, with a loop of tests, with one that gives
        up by a counter in memory.
        """
        place: dict[str, Any] = {"bar": bar, "index": index, "phase": phase}
        wait = line("{bar}[{index}].wait({phase})", "wait", **place)
        self.used |= how
        tested = self._tests(role, place, wait, how)
        if self.cluster == 1 or not how:
            return tested
        # Of the two CTAs one tests: for both there is too much to explore.
        other = line("{bar}[{index}].wait({phase})", "wait", **place)
        return [
            line("with ctx.when(ctx.cta_rank == 0):", "", *tested),
            line("with ctx.otherwise():", "", other),
        ]

    def _tests(self, role: Role, place: dict[str, Any], wait: Line, how: set[str]) -> list[Line]:
        r, out, guard = self.r, list[Line](), ""
        if "peek" in how:
            guard = self.name("ready")
            out.append(line(f"{guard} = {{bar}}[{{index}}].try_wait({{phase}})", "test", **place))
            if role.size != "group":
                out += self.note(role, guard)
                if r.random() < 0.35:
                    guard = ""  # the wait follows in any case
        rest = [wait]
        if how & {"poll", "counter"}:
            loop, sure = self.polls(role, place, "counter" in how)
            rest = loop if sure else [*loop, wait]
        if guard:
            return [*out, line("with ctx.when({cond}):", "guard", *rest, cond=f"~{guard}")]
        return out + rest

    def polls(self, role: Role, place: dict[str, Any], counted: bool) -> tuple[list[Line], bool]:
        """A loop of tests, and whether it ends only when a test has said yes."""
        r = self.r
        more, ready = self.name("more"), self.name("ready")
        begin = "True"
        test = line(f"{ready} = {{bar}}[{{index}}].try_wait({{phase}})", "test", **place)
        head = [line(f"{more} = ctx.var({begin})")]
        loop = f"for _ in ctx.loop_while({more}):"
        limit = r.choice((1, 2, 2, 3))
        if not counted and r.random() < 0.6:
            return [*head, line(loop, "poll", test, line(f"{more}.set(~{ready})"))], True
        if not counted:
            tries = self.name("tries")
            body = [
                test,
                line(f"{tries} += 1"),
                line(f"{more}.set(~{ready} & ({tries} < {{limit}}))", "limit", limit=limit),
            ]
            return [*head, line(f"{tries} = ctx.var(0)"), line(loop, "poll", *body)], False
        return [*head, *self._counted(role, loop, more, ready, test, limit)], False

    def _counted(
        self, role: Role, loop: str, more: str, ready: str, test: Line, limit: int
    ) -> list[Line]:
        """A loop that counts its rounds in memory."""
        r, count = self.r, self.name("count")
        if "global" in self.features and r.random() < 0.5:
            cell, at = self.tensor(self.name("tries"), (self.places,)), self.mine(role)
            one, meet = role.one, role.meet
            self.used.add("global")
        else:
            cell, at, one, meet = self.cell(self.name("tries")), "0, 0", role.one, role.meet
        begin = [line(one, "", line(f"ctx.store({cell}[{at}], 0)")), line(meet, "meet")]
        body = [
            test,
            line(f'{count} = ctx.let(ctx.load({cell}[{at}]), "{count}")'),
            line(meet, "meet"),
            line(one, "", line(f"ctx.store({cell}[{at}], {count} + 1)")),
            line(meet, "meet"),
            line(f"{more}.set(~{ready} & ({count} < {{limit}}))", "limit", limit=limit),
        ]
        return [*begin, line(loop, "poll", *body)]
