"""What is chosen for rows of any number of columns: it holds them, and no kernel spills."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilepipe.kernels.rows import heuristics
from tilepipe.kernels.rows.config import RowConfig
from tilepipe.kernels.rows.team import part_rows
from tilepipe.kernels.rows.validation import MOST_BACKWARD, MOST_COLUMNS, MOST_TWICE

CHOOSERS: dict[str, tuple[Callable[[int, int], RowConfig], dict[int, int]]] = {
    "norm": (heuristics.norm, MOST_COLUMNS),
    "layer_norm": (heuristics.layer_norm, MOST_COLUMNS),
    "softmax": (heuristics.softmax, MOST_COLUMNS),
    "softmax_backward": (heuristics.softmax_backward, MOST_TWICE),
    "cross_entropy": (heuristics.cross_entropy, MOST_COLUMNS),
    "norm_backward": (heuristics.norm_backward, MOST_BACKWARD),
    "layer_norm_backward": (heuristics.layer_norm_backward, MOST_BACKWARD),
}


@pytest.mark.parametrize("nbytes", [2, 4])
@pytest.mark.parametrize("name", CHOOSERS)
def test_what_is_chosen_holds_the_row(name: str, nbytes: int) -> None:
    choose, most = CHOOSERS[name]
    for columns in (1, 16, 17, 512, 513, 1024, 1025, 8192, 8193, 16384, 16385, most[nbytes]):
        cfg = choose(columns, nbytes)
        assert cfg.width(columns) * cfg.members >= columns
        assert cfg.width(columns) // cfg.threads * cfg.blocks * nbytes <= 256


def test_rows_of_partial_sums() -> None:
    assert part_rows(1000, RowConfig(warpgroups=4), 132) == 132 * 4
    assert part_rows(10, RowConfig(warpgroups=4), 132) == 12
    assert (
        part_rows(1000, RowConfig(threads=32, warpgroups=2, parts=8, cluster=4, ctas=2), 132) == 66
    )


def test_fewer_ctas_where_columns_lie_outside() -> None:
    """The code for columns outside takes registers, which would be spilled."""
    assert heuristics.cross_entropy(16384, 2).ctas == 2 * heuristics.cross_entropy(16376, 2).ctas


@pytest.mark.parametrize("name", CHOOSERS)
def test_the_threads_of_a_narrow_row_are_as_few_as_its_columns_ask_for(name: str) -> None:
    assert [CHOOSERS[name][0](n, 2).threads for n in (1, 16, 17, 100, 512)] == [1, 1, 2, 8, 32]
