"""Traced control flow: loops, branches, elected lanes and per-warp code."""
