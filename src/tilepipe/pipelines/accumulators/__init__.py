"""Accumulators in tensor memory, between the MMA warp and the epilogue."""
