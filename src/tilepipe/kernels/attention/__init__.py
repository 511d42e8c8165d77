"""Attention, forward: `sm90` and `sm100`."""
