"""Tile schedulers: which output tiles a CTA computes, in which order."""
