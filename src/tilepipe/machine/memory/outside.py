"""Fragments that lie outside their tensor at every execution of a line. Some may: a grid has a few
CTAs too many, or a tile is at an edge. Where all of them do, the line has no effect, and the
coordinates or the shape of the tensor are wrong.
"""

from __future__ import annotations

from tilepipe.ir.location import Loc
from tilepipe.machine.advice import Advice
from tilepipe.machine.machine import World
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.sites import Site

Line = tuple[Loc, int]  # a line of source, and the number of a tensor


def note_place(
    world: World, site: Site, tensor: GlobalTensor, coords: tuple[int, ...], box: tuple[int, ...]
) -> None:
    """Notes whether an element of a fragment at `coords` is inside its tensor."""
    line = site.loc, site.tensor
    if world.outside.get(line, coords) is None:
        return
    inside = all(s.stop > s.start for s in tensor.clip(coords, box)[0])
    if inside:
        world.outside[line] = None
    else:
        world.outside.setdefault(line, coords)


def never_inside(world: World) -> list[str]:
    """Advice for each line of which no execution had an element inside its tensor, at the end of a
    launch.
    """
    found: list[str] = []
    for (loc, number), coords in world.outside.items():
        if coords is not None:
            tensor = world.tensors[number]
            what = (
                f"{loc.short} has no effect: at each execution the whole fragment was outside of"
                f" tensor '{tensor.param.name}' of shape {tensor.shape}, first at coordinates"
                f" {tuple(coords)}. Stores are lost there, and loads give 0: correct the"
                " coordinates, or the shape."
            )
            found.append(Advice("outside", (loc.short,), (what,)))
    return found
