"""The shapes on which the choice of the GEMM's configuration is fitted and judged.

Four kinds, which take turns so that every part of the list is mixed: log-uniform extents, layers of
language models, extents that are no multiple of a tile or rows that end off a 128-byte line, and
multiples of 128 of which most leave a last wave that is not full. A hash of its extents decides
whether a shape is judged or fitted, so that adding others moves none. The measurements have all of
the first 441, and of the others, and of `long`, some of those that are fitted.
"""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections.abc import Iterator
from typing import Literal, TypeAlias

from tilepipe.bench.shapes import STANDARD

Shape: TypeAlias = tuple[int, int, int]
Kind = Literal["standard", "named", "uniform", "layer", "odd", "square"]

EVERY = 3  # one shape in so many is judged
MOST_SHAPES = 1200  # layers run out soon after
MOST_LONG = 1_600_000  # elements of C where K is long
MOST_FLOP, MOST_BYTES = 3e12, 0.8e9  # of a product, and of its operands and result
# Where the choice was slower than cuBLAS before it was fitted to this set.
NAMED: tuple[Shape, ...] = (
    (2304, 2304, 2304),
    (7000, 5000, 3000),
    (256, 7168, 2048),
    (3072, 3072, 12288),
    (2048, 8192, 28672),
    (16384, 2048, 7168),
    (1040, 4480, 3608),
)
# n, k of the projections of attention and of feed-forward layers
LAYERS = (
    (6144, 4096),
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (10240, 8192),
    (8192, 8192),
    (57344, 8192),
    (8192, 28672),
    (7168, 2048),
    (2112, 7168),
    (4096, 7168),
    (7168, 16384),
    (24576, 1536),
    (3584, 3584),
    (18944, 3584),
    (3584, 18944),
    (5120, 5120),
    (27648, 5120),
    (5120, 27648),
    (2304, 768),
    (768, 3072),
    (2048, 2048),
    (11008, 2048),
    (2048, 11008),
    (2880, 2880),
    (5120, 2880),
)
ROWS = (16, 48, 64, 100, 128, 200, 256, 384, 512, 777, 1024, 1500, 2048, 3000, 4096, 8192, 16384)


def judged(shape: Shape) -> bool:
    """True if a shape is held out: not fitted."""
    return zlib.crc32("x".join(map(str, shape)).encode()) % EVERY == 0


def shapes(count: int = 441, seed: int = 0) -> list[tuple[Kind, Shape]]:
    """`count` different shapes with their kinds: the standard ones, those that were slow, and the
    four kinds in turns.

    Raises:
        ValueError: there are not so many.
    """
    if count > MOST_SHAPES:
        raise ValueError(f"there are {MOST_SHAPES:,} shapes, not {count:,}")
    rng = random.Random(seed)
    found: dict[Shape, Kind] = dict.fromkeys(STANDARD, "standard")
    found |= {shape: "named" for shape in NAMED if shape not in found}
    makers: tuple[tuple[Kind, Iterator[Shape]], ...] = (
        ("uniform", _uniform(rng)),
        ("layer", _layers(rng)),
        ("odd", _odd(rng)),
        ("uniform", _uniform(rng)),
        ("layer", _layers(rng)),
        ("square", _squares(rng)),
    )
    for kind, made in itertools.cycle(makers):
        if len(found) >= count:
            break
        shape = next(x for x in made if x not in found and _fits(x))
        found[shape] = kind
    mixed = list(found.items())
    rng.shuffle(mixed)
    return [(kind, shape) for shape, kind in mixed]


def long(count: int = 600, seed: int = 77) -> list[Shape]:
    """`count` different shapes of few tiles and a long K that are fitted."""
    rng, found = random.Random(seed), dict[Shape, None]()
    while len(found) < count:
        m, n, k = (
            _extent(rng, low, high, 8) for low, high in ((48, 2048), (64, 3000), (2048, 16384))
        )
        if m * n > MOST_LONG or judged((m, n, k)):
            continue
        if rng.random() < 0.4:
            n, k = (max(128, round(x / 128) * 128) for x in (n, k))
        if not judged((m, n, k)):
            found[m, n, k] = None
    return list(found)


def _fits(shape: Shape) -> bool:
    m, n, k = shape
    return 2 * m * n * k <= MOST_FLOP and 2 * (m * k + n * k + m * n) <= MOST_BYTES


def _extent(rng: random.Random, low: int, high: int, multiple: int) -> int:
    drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
    return max(multiple, round(drawn / multiple) * multiple)


def _uniform(rng: random.Random) -> Iterator[Shape]:
    """As the random suite of `tilepipe bench gemm`."""
    while True:
        yield _extent(rng, 64, 8192, 8), _extent(rng, 64, 8192, 8), _extent(rng, 64, 8192, 8)


def _layers(rng: random.Random) -> Iterator[Shape]:
    while True:
        yield rng.choice(ROWS), *rng.choice(LAYERS)


def _odd(rng: random.Random) -> Iterator[Shape]:
    """Any number of rows, and rows of A, B and C of any multiple of 16 bytes; or round numbers that
    are no multiples of 128.
    """
    while True:
        if rng.random() < 0.6:
            m, n, k = (_extent(rng, 500, 9000, 8) for _ in range(3))
            yield m - rng.randrange(8), n, k
        else:
            multiple = rng.choice((200, 1000))
            m, n, k = (_extent(rng, 500, 9000, multiple) for _ in range(3))
            yield m, n, k


def _squares(rng: random.Random) -> Iterator[Shape]:
    """Multiples of 128: squares, and products that are square but for their K."""
    while True:
        side = _extent(rng, 768, 10000, 128)
        other = side if rng.random() < 0.6 else _extent(rng, 768, 10000, 128)
        yield side, other, rng.choice((side, 512, 1024, 2048, 4096, 8192, 16384, 4 * side))
