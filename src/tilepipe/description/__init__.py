"""What a kernel is made of, for people to see: as data, as a picture, as a part of a page."""

from tilepipe.description.describe import describe as describe
from tilepipe.description.description import (
    Action as Action,
    Argument as Argument,
    Barrier as Barrier,
    Description as Description,
    Memory as Memory,
    NamedBarrier as NamedBarrier,
    Ring as Ring,
    Role as Role,
)

__all__ = [
    "Action",
    "Argument",
    "Barrier",
    "Description",
    "Memory",
    "NamedBarrier",
    "Ring",
    "Role",
    "describe",
]
