"""Limits of an mbarrier (PTX ISA, "Contents of the mbarrier object")."""

MAX_COUNT = 2**20 - 1  # arrivals that one phase expects, from 1
MAX_TX_BYTES = 2**20 - 1  # bytes announced or delivered in one phase (tx-count), from 0
