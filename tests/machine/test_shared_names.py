"""Bytes of shared memory in messages: by variable and offset."""

from __future__ import annotations

import pytest

from tilepipe.machine.shared_names import NO_NAMES, SharedNames, SharedVariable

# 8 bytes of padding lie between `tile` and `full`, and `full` ends at 0x1010
NAMES = SharedNames(
    [SharedVariable("'full'", 0x1000, 16), SharedVariable("'tile'", 0x400, 0xBF8)],
)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (0x400, "'tile'"),
        (0x401, "'tile' + 1"),
        (0x800, "'tile' + 1,024"),
        (0xFF7, "'tile' + 3,063"),
        (0xFF8, "'tile' + 3,064 (which has 3,064 bytes)"),
        (0x1000, "'full'"),
        (0x1008, "'full' + 8"),
        (0x1010, "'full' + 16 (which has 16 bytes)"),
        (0x3FF, ""),
        (-8, ""),
    ],
)
def test_a_place_is_a_variable_and_an_offset(address: int, said: str) -> None:
    assert NAMES.place(address) == said


def test_an_address_stands_beside_the_place_where_it_matters() -> None:
    assert NAMES.exactly(0x404) == "'tile' + 4 (0x404)"
    assert NAMES.exactly(0x400) == "'tile' (0x400)"
    assert NAMES.exactly(0x10) == "0x10"


@pytest.mark.parametrize(
    ("first", "last", "count", "said"),
    [
        (0x400, 0x47F, 128, "bytes 0..127 of 'tile'"),
        (0x800, 0x800, 1, "byte 1,024 of 'tile'"),
        (0x400, 0x47F, 64, "64 of bytes 0..127 of 'tile'"),
        (0x400, 0xFF8, 0xBF9, "bytes 0..3,064 of 'tile' (which has 3,064 bytes)"),
        (0xFF0, 0x1007, 24, "bytes from 'tile' + 3,056 to 'full' + 7"),
        (0xFF0, 0x1007, 2, "2 of bytes from 'tile' + 3,056 to 'full' + 7"),
        (0x300, 0x47F, 384, ""),
    ],
)
def test_bytes_are_those_of_a_variable(first: int, last: int, count: int, said: str) -> None:
    assert NAMES.span(first, last, count) == said


def test_a_variable_has_bytes_that_all_lie_in_it() -> None:
    assert NAMES.variable(0x400, 0xFF7) == "'tile'"
    assert NAMES.variable(0x400, 0xFF8) == ""
    assert NAMES.variable(0xFF8, 0xFF8) == ""
    assert NAMES.variable(0x3FF, 0x400) == ""


def test_the_first_of_variables_at_one_address_gives_the_name() -> None:
    names = SharedNames([SharedVariable("used", 1024, 64), SharedVariable("other", 1024, 64)])
    assert names.place(1032) == "used + 8"


def test_without_variables_nothing_has_a_name() -> None:
    assert NO_NAMES.place(0x400) == NO_NAMES.span(0x400, 0x403, 4) == ""
    assert NO_NAMES.exactly(0x400) == "0x400"
