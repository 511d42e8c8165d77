"""The limits of TMA, wgmma and tcgen05 on shapes, dtypes and addresses: one set, for tracing and
printing.
"""
