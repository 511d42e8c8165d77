"""A program that knows addresses alone, on the machine: numbers, and planted mistakes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.machine.byte_program import Arguments, Variant
from tilepipe.ir.chip import H200
from tilepipe.machine.clusters import one_after_another
from tilepipe.machine.machine import World


def run(variant: Variant, arguments: Arguments, seed: int) -> None:
    """Runs it once."""
    world = World(variant.program(), variant.body, H200, 1, arguments.tensors(), {})
    one_after_another(world, [0], Random(seed) if seed else None, lambda m: None)


@pytest.mark.parametrize("seed", range(6))
def test_the_numbers(seed: int) -> None:
    arguments = Arguments()
    run(Variant(), arguments, seed)
    np.testing.assert_allclose(arguments.c, arguments.want, rtol=1e-5, atol=1e-4)
