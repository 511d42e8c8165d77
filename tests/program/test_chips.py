"""For which chip a kernel of NumPy arrays is bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp


@tp.kernel(grid=lambda chip: chip.sms)
def plain(ctx: tp.Context, out: Any) -> None:
    @ctx.role("one", warps=1)
    def one() -> None:
        ctx.store(out[ctx.block_id * 32 + ctx.lane], 1)


@tp.kernel(grid=lambda chip: chip.sms)
def tensor_memory(ctx: tp.Context, out: Any) -> None:
    tmem = tp.TmemAllocation(ctx, 32)

    @ctx.role("one", warps=1)
    def one() -> None:
        tmem.allocate()
        ctx.store(out[ctx.block_id * 32 + ctx.lane], 1)
        tmem.deallocate()


@pytest.mark.parametrize(("kernel", "chip"), [(plain, tp.H200), (tensor_memory, tp.B200)])
def test_of_the_architecture_that_has_its_ops(kernel: tp.KernelFunction, chip: tp.Chip) -> None:
    out = np.zeros(32 * 148, np.int32)
    program = kernel.bind(out)
    assert program.kernel.arch == chip.arch
    assert (program.launch_args.chip, program.launch_args.grid) == (chip, chip.sms)
    program.run()
    assert out.sum() == 32 * chip.sms


def test_a_chip_that_is_given_stands() -> None:
    assert (
        tensor_memory.bind(np.zeros(32 * 148, np.int32), chip=tp.H200).launch_args.grid
        == tp.H200.sms
    )


def test_the_chips_have_the_same_limits() -> None:
    """So that a trace for one does for the other."""
    limits = ("smem_per_cta", "registers", "max_threads", "max_cluster", "named_barriers")
    assert [getattr(tp.H200, x) for x in limits] == [getattr(tp.B200, x) for x in limits]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sms": -4}, "sms of a Chip is an integer of at least 1; got -4"),
        ({"sms": 0}, "got 0"),
        ({"sms": 1.5}, "got 1.5"),
        ({"max_cluster": True}, "max_cluster of a Chip .* got True"),
        ({"registers": 2**70}, "registers of a Chip is an integer"),
        ({"clock_ghz": -1}, "clock_ghz of a Chip is a number above 0; got -1"),
        ({"clock_ghz": float("nan")}, "above 0; got nan"),
        ({"dram_gbps": "fast"}, "dram_gbps of a Chip is a number; got 'fast'"),
        ({"arch": 90}, "arch of a Chip is a text, such as 'sm_90a'; got 90"),
        ({"clusters": 3}, "clusters of a Chip are pairs .* got 3"),
        ({"clusters": ((2, -1),)}, "the resident clusters of a Chip .* got -1"),
    ],
)
def test_chips_that_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=words):
        tp.Chip(**given)
