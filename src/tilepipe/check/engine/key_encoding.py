"""One encoding for equal keys, and different ones for different keys.

`hash()` will not do where a key stands for a state: `hash(-1) == hash(-2)`, inside tuples as well,
and two states with one hash would be taken for one. Bytes of `marshal` in version 2, the last
without references to objects it has met before, depend on values alone: ints of any size, strings,
bytes, booleans, None, floats, and tuples of those, each with its type and its length.

A NumPy scalar or array is none of these, and marshal does not refuse it: it takes its bytes,
without dtype and shape, as it does of whatever has a buffer. Whoever makes a key turns such a value
into plain ones first, as `locals.value_key` does; to look at every part here would cost more than
the encoding.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Hashable
from typing import Any

_VERSION = 2
_dumps: Any = marshal.dumps
DIGEST = 16  # bytes: of 2**40 states two have one digest with a probability of 2**-49


def encoded(key: Hashable) -> bytes:
    """A key of plain values as bytes. Sets have no order: sort them into tuples first.

    Raises:
        ValueError: a part has no such bytes: an object of a class of its own, say.
    """
    out: bytes = _dumps(key, _VERSION)
    return out


def digest(key: Hashable) -> bytes:
    """The same in 16 bytes (BLAKE2b)."""
    return hashlib.blake2b(encoded(key), digest_size=DIGEST).digest()
