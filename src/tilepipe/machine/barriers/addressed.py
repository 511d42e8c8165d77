"""The mbarriers of a CTA by their address in shared memory, for a front end that works with
addresses.

`Cta.bars` is a list for programs whose barriers stand in arrays, and this for others: an op names
a barrier by its number in the one, by its address in the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.machine.actors import CtaPlace
from tilepipe.machine.barriers.state import Mbarrier


class AddressedBarriers:
    """Address -> mbarrier. An address that holds none gives one that is not initialised, so that
    whatever uses it says so.
    """

    __slots__ = ("_at", "cta")

    def __init__(self, cta: CtaPlace) -> None:
        self.cta = cta
        self._at: dict[int, Mbarrier] = {}

    def __getitem__(self, address: int) -> Mbarrier:
        bar = self._at.get(address)
        if bar is None:
            name = f"the mbarrier at {address:#x}"
            bar = self._at[address] = Mbarrier(
                self.cta, name, 0, 1, address, by_parity=True, address=address
            )
        return bar

    def __iter__(self) -> Iterator[Mbarrier]:
        """In the order of their addresses, whatever the order in which they were first used."""
        return iter([self._at[address] for address in sorted(self._at)])

    def __len__(self) -> int:
        return len(self._at)
