"""PTX warps on the simulated machine."""
