"""The equation by which `times` predicts what the GEMM takes on Hopper, and its constants.

A cluster works on a tile of C at a time, in steps along K. Of a product and a configuration:

    tiles  = of clusters: rows of tiles · columns of tiles · batch
    waves  = ⌈tiles · k_parts / clusters that the chip runs at once⌉
    CTAs   = tiles · k_parts / waves · CTAs of a cluster    (at work at a time, on average)
    steps  = ⌈K / (bk · split_k · k_parts)⌉
    new    = bytes of A and B / bytes that all CTAs load    (the part that is not in L2 yet)

A step takes as long as the slowest of five things, of which `fill` and `floor` have a constant
for CTAs that share no loads (with split_k, too), for clusters of 2 CTAs, and for larger ones. Rows
outside of the operand are those of tiles that lie partly outside: in the place of tiles that lie
outside wholly, others are loaded again.

    mma    = cycles of the wgmmas / tensor_mhz · pingpong
    load   = bytes that a CTA loads · (1 + outside · part of its rows outside of the operand)
             · (1 / sm_loads + CTAs / chip_loads + new · missed / sm_loads) · skew
    wait   = (latency + far · new) / (stages - 1)
    filled = bytes that are written to the shared memory of a CTA / fill
    floor
    step   = (mma⁸ + load⁸ + wait⁸ + filled⁸ + floor⁸)^⅛

The epilogue of a tile:

    store  = (store · elements / (128 · 256) + slice · slots filled + box · TMA stores)
             · skewed_store · extras

With ping-pong, the part `hidden` of it runs beside the next tile, and only the last is waited for;
with other schedules, hidden is 0 here. A launch, its traffic with memory, and what the power limit
allows:

    body   = waves · (steps · step + store · (1 - hidden) + wave) + store · hidden
             + start + join or split + exchange · elements / (128 · 256) · (1 - 1 / split_k)
             + meet + part · k_parts · elements / (128 · 256)       (these two if k_parts > 1)
    memory = ((bytes of A and B + written · bytes of C) / dram + bytes read again / again)
             · (1 + idle · (1 - CTAs / SMs))
    power  = tiles · k_parts · steps · CTAs of a cluster
             · (cycles / mma_power + bytes filled / fill_power + bytes loaded / load_power)
             + (bytes of A and B + bytes of C) / dram_power

Each of the three is multiplied by the same correction: 1 + the sum of what `corrections` has for
places of configurations, each as far as the configuration is like that place (`alike` in
`times_facts`), times the traits of the product. Then

    after a pause    = (body⁴ + memory⁴)^¼
    in steady state  = (body⁴ + memory⁴ + power⁴)^¼

Sums of powers instead of the largest: near a tie, both limits cost time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.kernels.gemm import times_data


@dataclass(frozen=True)
class Constants:
    """The constants of the equation above, for one chip. Times are microseconds; rates are for each
    microsecond; factors multiply a time and have no unit.

    Attributes:
        start: µs that each launch takes besides the rest.
        wave: µs that each wave takes besides its steps and its epilogue.
        tensor_mhz: cycles of the tensor cores in a microsecond.
        pingpong: factor of the wgmmas' time with schedule "pingpong"; with others it is 1.
        fill: bytes that are written to the shared memory of one SM, by all that load for it.
        floor: µs that no step is faster than: its barriers, and those of the CTAs that share loads.
        sm_loads: bytes that one SM can load into its shared memory.
        chip_loads: bytes that all SMs together can load into their shared memory.
        missed: how many times a byte's time at `sm_loads` is added for a byte that is not in L2.
        outside: how many times its own load time is added for a row of a tile that lies outside of
            the operand, which TMA fills with zeros: of a CTA that shares no loads, and in clusters,
            where all wait for the slowest.
        skew: factors of the load time where rows of A and B start 16, 32 or 64 bytes off a line of
            128 bytes; where they start on one, it is 1.
        latency: µs from the request of a load to its arrival, out of L2.
        far: µs added to the latency if L2 does not hold any of it.
        dram: bytes that memory delivers or takes.
        written: bytes of A or B that take as long as one byte of C.
        again: bytes that are loaded a second time because L2 no longer holds them (`Facts.again`).
        idle: how many times its own time is added to that of memory if no SM were at work: few SMs
            cannot keep memory busy.
        store: µs of an epilogue of 128 × 256 elements.
        slice: µs of each store slot that a warpgroup fills, which its warps meet for.
        box: µs of each TMA store of a warpgroup.
        skewed_store: factor of the epilogue where rows of C start 16 or 32 bytes off a line of 128
            bytes; elsewhere it is 1.
        hidden: part of an epilogue that runs beside the next tile with schedule "pingpong". The end
            of the tile's last steps does, too, and counts here: so it may be above 1.
        extras: factor of the epilogue with scales, a bias, a source or an activation; without, 1.
        join: µs that a launch takes longer in clusters of 2 CTAs, and of 4 or 8, without split_k.
        split: µs that a launch takes longer because 2, 4 or 8 CTAs exchange their sums; of other
            numbers, in between by their logarithms.
        exchange: µs for all sums of 128 × 256 elements, of which each CTA sends all but its own.
        meet: µs that a launch takes longer because parts of K meet in global memory (k_parts).
        part: µs for each part of 128 × 256 elements that the CTA which comes last adds up.
        mma_power: cycles of the tensor cores that the power limit allows, if nothing else took
            power; of all SMs together, as the three that follow.
        fill_power: the same, of bytes that are written to shared memory.
        load_power: the same, of bytes that are loaded from L2.
        dram_power: the same, of bytes that are read from memory and written to it.
        corrections: weights without unit: for some places of configurations (`place` in
            `times_facts`), one for each element of `Facts.traits`.
    """

    start: float
    wave: float
    tensor_mhz: float
    pingpong: float
    fill: tuple[float, float, float]
    floor: tuple[float, float, float]
    sm_loads: float
    chip_loads: float
    missed: float
    outside: tuple[float, float]
    skew: tuple[float, float, float]
    latency: float
    far: float
    dram: float
    written: float
    again: float
    idle: float
    store: float
    slice: float
    box: float
    skewed_store: float
    hidden: float
    extras: float
    join: tuple[float, float]
    split: tuple[float, float, float]
    exchange: float
    meet: float
    part: float
    mma_power: float
    fill_power: float
    load_power: float
    dram_power: float
    corrections: dict[tuple[float, ...], tuple[float, ...]]


H200 = Constants(**times_data.H200)  # type: ignore[arg-type]  # a dict of several kinds
