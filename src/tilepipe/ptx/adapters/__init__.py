"""Launches of what other compilers have compiled: with their own objects and arguments, bound as
their host code would bind them.

Nothing here imports a compiler: the objects are known by what they have.
"""

from tilepipe.ptx.adapters.cute import from_cute as from_cute, launches_of_cute as launches_of_cute
from tilepipe.ptx.adapters.triton import from_triton as from_triton
