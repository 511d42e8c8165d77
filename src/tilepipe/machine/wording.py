"""The names of instructions in the language of a front end, for the advice of messages."""

from __future__ import annotations


class Wording(dict[str, str]):
    """PTX name of an instruction, or of a way to write a kernel -> what to write for it.

    What a front end leaves out is called by its PTX name. `get` is for sentences that only some
    front ends have: advice about their own library.
    """

    def __missing__(self, name: str) -> str:
        return name


PTX = Wording()
