"""A run in a notebook: its line, and its part of a page."""

from __future__ import annotations

from dataclasses import replace

from tests.check.test_page import EVIL, Cells
from tests.timeline.kernels import copying
from tilepipe.sim import RoleStats, Run


def texts(run: Run) -> list[str]:
    return [text for text, _ in Cells(run._repr_html_()).texts]


def test_a_run() -> None:
    run = copying().run(seed=3)
    us = f"{run.simulated_us:.1f} µs"
    assert repr(run) == f"<Run (load, store): {us} modelled, {run.steps} steps, seed 3>"
    assert repr(replace(run, advice=["a", "b"])).endswith(", seed 3, 2 advice>")
    found = texts(run)
    assert f" {us} by the cost model, {run.steps} steps, seed 3" in found
    waits = next(role for role in run.roles if role.name == "store")
    assert found[found.index("store") :][: 3] == [
        "store", "0.0 MB", f"{waits.waits}",
    ]  # fmt: skip
    assert "timeline" not in found
    assert "Advice:" not in found


def test_a_timeline_says_for_what_roles_wait() -> None:
    found = texts(copying().run(timeline=True))
    row = found.index("load × 2")
    assert found[row + 3].startswith("ring.empty ")


def test_what_a_kernel_prints_and_names_of_users_are_no_markup() -> None:
    lines = [f"{i} {EVIL}" for i in range(50)]
    run = Run([RoleStats(EVIL)], {}, [EVIL], lines, 1.0, 2, 0)
    page = Cells(run._repr_html_())
    assert not {"script", "b"} & set(page.tags)
    found = [text for text, _ in page.texts]
    assert EVIL in found
    assert found[-1].startswith("... 10 lines before\n10 <script>")
    assert found[-1].endswith(f"49 {EVIL}")
