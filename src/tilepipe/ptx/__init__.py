"""A reader of PTX: parses it, and runs it on the simulated machine."""

from tilepipe.ptx.arguments import Argument as Argument, TensorMap as TensorMap
from tilepipe.ptx.launch import Kernel as Kernel, Launch as Launch
from tilepipe.ptx.loading import load as load
