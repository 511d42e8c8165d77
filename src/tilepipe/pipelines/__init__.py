"""The pipeline types: barriers, rings of stages, accumulators, tile schedulers, attention."""
