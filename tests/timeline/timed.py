"""Timelines of timed builds without a GPU: the reader of PTX runs what NVRTC makes of one, with its
clocks and its notes in memory.
"""

from __future__ import annotations

import numpy as np

import tilepipe as tp
from tilepipe import cuda, ptx
from tilepipe.cuda.codegen.parameters import arguments
from tilepipe.cuda.debug.stamps import decode, stamp_bytes
from tilepipe.ir.stamps import WarpStamps
from tilepipe.program.printed import given
from tilepipe.timeline import Timeline
from tilepipe.timeline.measured import measured


def timed(program: tp.Program, ctas: int = 2, room: int = 512) -> Timeline:
    """The timeline that a timed build of a program writes, of its first CTAs."""
    launch = program.launch_args
    return measured(program.kernel, launch.grid, launch.chip, stamps(program, ctas, room))


def stamps(program: tp.Program, ctas: int, room: int) -> tuple[WarpStamps, ...]:
    """What its warps have noted."""
    kernel, launch = program.kernel, program.launch_args
    made = cuda.compile(kernel, emit="ptx", timed=True)
    memory = np.zeros(stamp_bytes(kernel, ctas, room), np.uint8)
    last = memory, np.uint32(ctas), np.uint32(room)
    (entry,) = ptx.load(made.data.decode()).values()
    entry.bind(
        [*(given(argument, launch) for argument in arguments(kernel)), *last],
        grid=launch.grid, cluster=kernel.cluster_size, smem=made.smem_bytes, chip=launch.chip,
    ).run(timeout=None)  # fmt: skip
    return decode(memory, kernel, ctas, room)
