"""What the hardware takes: limits of TMA, wgmma, tcgen05 and tensor memory on shapes, dtypes and
addresses. One set, for tracing and printing.
"""
