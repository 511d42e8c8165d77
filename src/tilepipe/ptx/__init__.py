"""A reader of PTX: parses it, and runs it on the simulated machine."""

from tilepipe.ptx.adapters import (
    from_cute as from_cute,
    from_triton as from_triton,
    launches_of_cute as launches_of_cute,
)
from tilepipe.ptx.arguments.tensor_map import TensorMap as TensorMap
from tilepipe.ptx.arguments.values import (
    Argument as Argument,
    Pointer as Pointer,
    Struct as Struct,
)
from tilepipe.ptx.launch import Kernel as Kernel, Launch as Launch
from tilepipe.ptx.loading import Kernels as Kernels, load as load
