"""An unambiguous encoding of keys: equal keys have one encoding, and different keys different ones.

Python's `hash()` cannot stand for a state: `hash(-1) == hash(-2)`, also inside tuples, and two
states with one hash would be merged. The bytes of `marshal` in version 2, the last version without
back references, depend on values alone: ints of any size, strings, bytes, booleans, None, floats,
and tuples of those, each with its type and its length.

A NumPy scalar or array is none of these, and marshal does not refuse it: it encodes its buffer
without dtype and shape. Whoever makes a key converts such values to plain ones first, as
the front end does; to check every part here would cost more than the encoding.
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
