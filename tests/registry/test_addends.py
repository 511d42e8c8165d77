"""What the commands add to a product: `bias=` and `source=` of the GEMMs."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.registry.catalog import find
from tilepipe.registry.settings import Setting

FAMILIES: list[tuple[str, dict[str, Setting]]] = [
    ("gemm", {"out_dtype": "float32"}),
    ("gemm", {"swap": "ab", "activation": "relu"}),
    ("gemm", {"arch": "sm100", "out_dtype": "float32"}),
    ("gemm_block_scaled", {"out_dtype": "float32", "activation": "silu"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("bias", ["column", "row"])
@pytest.mark.parametrize(("kernel", "given"), FAMILIES, ids=str)
def test_a_case_adds_what_is_asked_for_and_is_judged_by_it(
    kernel: str, given: dict[str, Setting], bias: str
) -> None:
    spec = find(kernel)
    stated = {"m": 136, "n": 72, "k": 96, **given}
    case = spec.make(spec.configure({**stated, "bias": bias, "source": True}, None)[0], 3)
    case.program.run(seed=3)
    assert case.verify().ok
    plain = spec.make(spec.configure(stated, None)[0], 3)
    plain.program.run(seed=3)
    assert plain.verify().ok
    case.output[...] = plain.output
    assert not case.verify().ok
    for left_out in ({"bias": bias}, {"source": True}):  # each of them alone is something else
        part = spec.make(spec.configure({**stated, **left_out}, None)[0], 3)
        part.program.run(seed=3)
        assert part.verify().ok
        assert not np.array_equal(part.output, plain.output)
        case.output[...] = part.output
        assert not case.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["gemm", "gemm_block_scaled"])
def test_a_bias_that_there_is_not(kernel: str) -> None:
    spec = find(kernel)
    with pytest.raises(
        tp.BindError,
        match=re.escape("setting bias must be one of none, column, row, got 'columns'"),
    ):
        spec.make(spec.configure({"bias": "columns"}, None)[0], 0)


def test_the_heuristic_spares_registers_for_what_is_added() -> None:
    spec = find("gemm")
    problem = spec.problem  # type: ignore[attr-defined]
    assert not problem(spec.settings).extras
    for given in ({"bias": "row"}, {"source": True}):
        assert problem(spec.settings | given).extras
