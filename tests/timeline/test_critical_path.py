"""The critical path and the idle time of the tensor cores, of kernels whose times are known."""

from __future__ import annotations

import itertools

import pytest

from tests.timeline.kernels import COPY, LATENCY, copying, recorded
from tilepipe.errors import BindError
from tilepipe.registry.catalog import find
from tilepipe.timeline import Event, Release, Timeline, Wait

CYCLES_PER_US = 1600.0


def sums(found: Timeline, cta: int = 0) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in found.critical_path(cta):
        total[part.what] = total.get(part.what, 0.0) + part.us
    return total


def test_one_stage_makes_a_chain_of_all_copies() -> None:
    found = recorded(copying())
    path = found.critical_path(1)
    assert {part.cta for part in path} == {1}
    assert [part.what.partition(":")[0] for part in path] == [
        *["tma_load"] * 2, *["tma_store"] * 2, *["tma_load"] * 2, *["tma_store"] * 2,
    ]  # fmt: skip
    latency, moving = 2 * LATENCY / CYCLES_PER_US, 2 * COPY / CYCLES_PER_US
    assert sums(found, 1) == pytest.approx({
        "tma_load: latency": latency, "tma_load: moving": moving,
        "tma_store: latency": latency, "tma_store: moving": moving,
    })  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "settings"),
    [("gemm", []), ("gemm", ["cluster=2", "stages=2"]), ("gemm", ["split_k=2"]), ("attention", [])],
)
def test_it_has_no_gaps_and_reaches_from_the_start_to_the_end(
    kernel: str, settings: list[str]
) -> None:
    spec = find(kernel)
    config, _ = spec.configure(spec.parse(settings), None)
    found = recorded(spec.make(config, 0).program, 2)
    for cta in (0, 1):
        path = found.critical_path(cta)
        assert path[0].begin_us == pytest.approx(0.0, abs=1e-5)
        assert path[-1].end_us == max(e.end_us for e in found.events if e.cta == cta)
        for a, b in itertools.pairwise(path):
            assert a.end_us == pytest.approx(b.begin_us, abs=1e-5)


def made(*events: Event) -> Timeline:
    return Timeline.of("made", 1, 1, list(events), [], None)


def waited(role: str, begin: float, end: float, by: Release | None) -> Event:
    return Event(0, role, "", "wait", "mbar_wait", "mbar_wait go", "k.py:1", begin, end, "go",
                 wait=Wait("go", 0, by))  # fmt: skip


def test_what_agents_do_between_their_waits_and_how_long_signals_take() -> None:
    by = Release(0, "a", "", "mbar_arrive", "mbar_arrive go", "k.py:2", 5.75)
    found = made(waited("a", 0.0, 1.0, None), waited("b", 2.0, 6.0, by))
    assert [(p.what, p.begin_us, p.end_us) for p in found.critical_path()] == [
        ("a waits", 0.0, 1.0),
        ("a at work", 1.0, 5.75),
        ("signals", 5.75, 6.0),
    ]


def test_mmas_that_stand_in_line() -> None:
    def mma(role: str, begin: float, end: float) -> Event:
        return Event(
            0, role, "", "mma", "wgmma", "wgmma", "k.py:3", begin, end,
            unit_us=(begin, end), unit_ctas=(0,),
        )  # fmt: skip

    found = made(mma("a", 1.0, 2.0), mma("b", 2.0, 3.0), mma("a", 4.0, 5.0))
    assert sums(found) == {"a at work": 4.0, "wgmma": 1.0}
    found = made(mma("a", 1.0, 2.0), mma("b", 2.0, 3.0))
    assert sums(found) == {"a at work": 1.0, "wgmma": 2.0}
    (idle,) = made(
        mma("a", 1.0, 2.0), mma("b", 2.0, 3.0), mma("a", 4.0, 5.0),
        waited("a", 2.5, 3.75, None), waited("other", 3.0, 4.0, None), waited("a", 5.0, 8.0, None),
    ).bubbles()  # fmt: skip
    assert (idle.before, idle.between, idle.after) == (1 / 8, 1 / 8, 3 / 8)
    assert idle.longest == (3.0, 4.0)
    assert idle.waits == (("go", False, 0.75 / 8),)


def test_nothing_happened() -> None:
    assert made().critical_path() == []
    assert made().bubbles() == []


def test_a_cta_that_was_not_recorded() -> None:
    found = recorded(copying(), 1)
    with pytest.raises(
        BindError, match=r"CTA 1 of copy was not recorded: .* has 1 of 2 CTAs"
    ) as caught:
        found.critical_path(1)
    assert "record more with timeline=2" in str(caught.value)
    with pytest.raises(BindError, match=r"has 1 of 2 CTAs, from 0 on$"):
        found.critical_path(2)
    for cta in (-1, "a"):
        with pytest.raises(BindError, match="cta, one of the 1 recorded of copy, is an integer"):
            found.critical_path(cta)  # type: ignore[arg-type]
