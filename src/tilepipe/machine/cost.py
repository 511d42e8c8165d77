"""The cost model: a few figures of Hopper and Blackwell, enough to show which waits a pipeline
spends its time in. It is not cycle accurate.

Each agent has a virtual time; a wait ends at the later of the agent's time and the time of the
completion. The TMA unit and the tensor cores of a CTA serve requests one at a time. CTAs share only
the SMs (a CTA starts when an SM has room for it) and the memory bandwidth: a launch takes at least
the time to move each byte that it touches once.
"""

from __future__ import annotations

import heapq

from tilepipe.ir.chip import Chip

TMA_LATENCY = 700.0  # cycles from issue to data in shared memory, from L2
TMA_BYTES_PER_CYCLE = 48.0  # L2 to one SM
# By bits of an operand. Dense multiply-adds count two: an SM does 4,096 flop a cycle in 16 bits
# (NVIDIA H100 white paper, 989 TFLOP/s), twice that in 8 bits, half in tf32.
FLOPS_PER_CYCLE = {8: 8192.0, 16: 4096.0, 32: 2048.0}
# tcgen05: an SM does 8,192 flop a cycle in 16 bits (NVIDIA DGX B200 data sheet: 72 PFLOP/s of
# sparse fp8 on 8 GPUs, that is 4.5 dense on one, of 148 SMs at 1.85 GHz; of fp4 twice as many).
TCGEN05_FLOPS_PER_CYCLE = {4: 32768.0, 8: 16384.0, 16: 8192.0, 32: 4096.0}
LAUNCH_US = 2.0


def makespan(
    chip: Chip, cycles: list[float], cluster_size: int, occupancy: int, dram_bytes: int
) -> float:
    """Microseconds for a launch whose clusters take `cycles` each, and start in order as soon as
    there is room for `cluster_size` CTAs.
    """
    places = max(chip.sms * occupancy // cluster_size, 1)
    free = [0.0] * min(places, max(len(cycles), 1))
    for duration in cycles:
        heapq.heapreplace(free, free[0] + duration)
    compute = max(free) / (chip.clock_ghz * 1e3)
    memory = dram_bytes / (chip.dram_gbps * 1e3)
    return LAUNCH_US + max(compute, memory)
