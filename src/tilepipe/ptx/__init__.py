"""A reader of PTX: parses it, and runs it on the simulated machine."""

from tilepipe.ptx.launch import (
    Kernel as Kernel,
    Launch as Launch,
    TensorMap as TensorMap,
    load as load,
)
