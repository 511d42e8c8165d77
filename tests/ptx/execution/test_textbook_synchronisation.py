"""CTAs that wait for each other through memory run right, whatever their order, and each of the
textbook kernels with a part of its synchronisation weakened is a race.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.ptx.execution.textbook_kernels import CTAS, KERNELS, Kernel, bound
from tilepipe.errors import RaceError

SEEDS = (0, 1, 2, 3)


def run(made: Kernel, text: str, seed: int, *, grid: int = CTAS, rules: Any = "practice") -> Any:
    launch = bound(made, text, grid=grid)
    launch.run(seed, rules=rules, timeout=30)
    return launch.args[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_it_runs_right(name: str) -> None:
    made = KERNELS[name]
    for seed in SEEDS:
        for rules in ("practice", "strict"):
            assert run(made, made.text, seed, rules=rules).tolist() == made.expected


@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for name, made in KERNELS.items() for what in made.weak]
)
def test_a_part_weakened_is_a_race(name: str, what: str) -> None:
    made = KERNELS[name]
    old, new, at = made.weak[what]
    assert old in made.text
    for seed in SEEDS[:2]:
        with pytest.raises(RaceError) as caught:
            run(made, made.text.replace(old, new), seed)
        assert at in str(caught.value).split("second:")[1]
