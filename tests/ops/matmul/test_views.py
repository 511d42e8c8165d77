"""Random views of random memory, with launches emulated on the CPU."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.examples import share
from tests.support.ops.emulated_matmul import Emulator, gpu
from tests.support.ops.torch_views import Operands, check_views, problem

__all__ = ["gpu"]


@given(problem("cpu"))
@settings(max_examples=share(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.slow
def test_views(gpu: Emulator, operands: Operands) -> None:
    check_views(operands)
