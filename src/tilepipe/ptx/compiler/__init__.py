"""PTX functions to Python that runs a warp at a time."""
