"""Asynchronous units of the machine: TMA, wgmma, tcgen05, cluster launch control."""
