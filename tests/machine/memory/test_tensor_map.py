"""Tensor maps, against the bytes that the driver writes and what an H100 copies.

tests/golden/tensor_maps_h100.npz has arguments of cuTensorMapEncodeTiled (data type, address, rank,
swizzle, promotion, fill, result; five extents, four strides, five extents of the box, five
traversal strides) and the 128 bytes. tests/golden/tensor_copies_h100.json has copies.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest

from tilepipe.errors import LimitError, SimFault
from tilepipe.ir.location import Loc
from tilepipe.machine.cta import Cta
from tilepipe.machine.memory.boxes import SharedBox, boxed
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.machine.memory.tensor_map import BY_NAME, TensorMapFields, decode, encode, replaced
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site
from tilepipe.machine.wording import Wording
from tilepipe.ptx.isa.reduction_types import TENSOR
from tilepipe.ptx.isa.reductions import reduction

GOLDEN = Path(__file__).parents[2] / "golden"
# CU_TENSOR_MAP_DATA_TYPE_*, in the driver's order
TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32",
    "tf32.ftz",
)  # fmt: skip
BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)
REDUCTIONS = ("", "", "add", "min", "max", "inc", "dec", "and", "or", "xor")
SITE = Site(0, Loc("copy.ptx", 1), "copy", "copy", "r", None, None)  # type: ignore[arg-type]
MEMORY = 1 << 16  # bytes of a case


@pytest.mark.slow
def test_the_bytes_are_those_of_the_driver() -> None:
    """For all that it encodes; it refuses what `broken_rule` names."""
    data = np.load(GOLDEN / "tensor_maps_h100.npz")
    encoded = 0
    for row, raw in zip(data["arguments"].tolist(), data["bytes"], strict=True):
        kind, address, rank, swizzle, promotion, nan, result = row[:7]
        map_ = TensorMapFields(
            BY_NAME[TYPES[kind]], address, tuple(row[7 : 7 + rank]),
            tuple(row[12 : 12 + rank - 1]), tuple(row[16 : 16 + rank]),
            tuple(row[21 : 21 + rank]), swizzle=swizzle, nan=bool(nan), promotion=promotion,
        )  # fmt: skip
        assert bool(map_.broken_rule()) == bool(result), map_
        if not result:
            encoded += 1
            assert encode(map_) == raw.tobytes(), map_
            assert decode(raw.tobytes()) == map_
    assert encoded > 1500


def _given(kind: int, seed: int) -> npt.NDArray[np.uint8]:
    """What memory held: for floating-point types multiples of 1/8, else random bytes."""
    rng = np.random.default_rng(seed)
    dtype = {6: "f2", 7: "f4", 8: "f8", 9: "f4", 10: "f4", 12: "f4"}.get(kind)
    if dtype is None:
        return rng.integers(0, 256, MEMORY, dtype=np.uint8)
    values = (rng.integers(-64, 64, MEMORY) / 8).astype(dtype)
    if kind == 9:
        values = (values.view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(values).view(np.uint8)[:MEMORY].copy()


COPIES = json.loads((GOLDEN / "tensor_copies_h100.json").read_text())["copies"]


def copied(row: list[Any]) -> int:
    """The CRC that a copy of the table leaves."""
    case, kind, shape, strides, box, steps, swizzle, nan, at, what, _ = row
    memory = DeviceMemory(1 << 40)
    array = _given(0 if what == -1 else kind, case)
    address = memory.address_of("a", array) + 1024
    map_ = TensorMapFields(
        BY_NAME[TYPES[kind]], address, tuple(shape), tuple(strides), tuple(box), tuple(steps),
        swizzle=swizzle, nan=bool(nan),
    )  # fmt: skip
    assert not map_.broken_rule()
    space = ByteSpace(Cta(0, 1, MEMORY, Wording({}), addressed=True), MEMORY)
    nbytes = -(-int(np.prod(box)) * BYTES[kind] // 16) * 16
    store = what > 0
    part = boxed(memory, map_, at, SITE, store=store, whole=what == 1)
    if not store:
        space.memory[:] = 0x5A
        SharedBox(space, 0, map_).put(part.get())
        return crc32(space.memory[:nbytes].tobytes())
    space.memory[:nbytes] = _given(kind, 1000 + case)[:nbytes]
    combine = reduction(REDUCTIONS[what], TYPES[kind]) if what > 1 else None
    part.put(SharedBox(space, 0, map_).get(), combine)
    return crc32(array.tobytes())


@pytest.mark.parametrize("what", range(-1, 10))
def test_copies_are_those_of_an_h100(what: int) -> None:
    seen = 0
    for row in COPIES:
        # a store of rows narrower than the swizzle read what the measurement had not written
        narrow = row[6] and row[4][0] * BYTES[row[1]] < 16 << row[6]
        if row[9] != what or row[10] is None or (what > 0 and narrow):
            continue
        seen += 1
        assert copied(row) == row[10], row
    assert seen


def test_copies_that_an_h100_refuses() -> None:
    refused = [row for row in COPIES if row[10] is None]
    assert len(refused) == 12
    for row in refused:
        if row[9] > 1:
            assert TYPES[row[1]] not in TENSOR[REDUCTIONS[row[9]]]
        else:
            with pytest.raises(SimFault):
                copied(row)


def test_packed_types_are_spread_in_shared_memory() -> None:
    """PTX ISA, tensor types: 16 elements of 4 or 6 bits take 16 bytes of shared memory."""
    for name, group in (("b4x16_p64", 8), ("b6x16_p32", 12)):
        array = np.arange(96 * 2, dtype=np.uint8).reshape(2, 96)[:, : group * 8].copy()
        memory = DeviceMemory(1 << 40)
        address = memory.address_of("a", array)
        map_ = TensorMapFields(BY_NAME[name], address, (128, 2), (group * 8,), (128, 2), swizzle=3)
        assert not map_.broken_rule()
        assert map_.nbytes == group * 8 * 2
        assert map_.smem_bytes == 256
        space = ByteSpace(Cta(0, 1, 1024, Wording({}), addressed=True), 1024)
        part = boxed(memory, map_, (0, 0), SITE, store=False, whole=False)
        SharedBox(space, 0, map_).put(part.get())
        line = space.memory[:128].reshape(8, 16)
        assert (line[:, :group].reshape(-1) == array[0]).all()
        second = space.memory[128:256].reshape(8, 16)[np.arange(8) ^ 1]
        assert (second[:, :group].reshape(-1) == array[1]).all()


@pytest.mark.parametrize(("atom", "keeps"), [(1, 32), (3, 64)])
def test_swizzles_that_keep_more_together(atom: int, keeps: int) -> None:
    """PTX ISA, tensor swizzling modes, the tables of sub-modes."""
    map_ = TensorMapFields(0, 0, (128, 8), (128,), (128, 8), swizzle=3, atom=atom)
    cells = 16 * map_.places(0).reshape(8, 128 // 16)
    step = keeps // 16
    for line in range(8):
        order = (cells[line, ::step] - 128 * line) // keeps
        assert order.tolist() == [i ^ line % (8 // step) for i in range(8 // step)]


def test_fields_are_replaced_as_they_are_encoded() -> None:
    before = TensorMapFields(6, 1 << 40, (64, 8), (128,), (64, 8), swizzle=3, name="tensor map")
    after = TensorMapFields(
        BY_NAME["tf32"], (1 << 40) + 64, (96, 9), (1 << 38,), (32, 3), (1, 2), swizzle=3, nan=True
    )
    raw = encode(before)
    for field, ordinal, value in (
        ("global_address", 0, (1 << 40) + 64), ("elemtype", 0, BY_NAME["tf32"]),
        ("global_dim", 0, 96), ("global_dim", 1, 9), ("global_stride", 0, 1 << 38),
        ("box_dim", 0, 32), ("box_dim", 1, 3), ("element_stride", 1, 2), ("fill_mode", 0, 1),
    ):  # fmt: skip
        raw = replaced(raw, field, ordinal, value)
    assert decode(raw) == after
    assert decode(replaced(raw, "rank", 0, 0)).shape == (96,)


def test_bytes_that_are_no_tensor_map() -> None:
    with pytest.raises(LimitError, match="these are not the bytes of a tensor map"):
        decode(bytes(range(128)))
    with pytest.raises(ValueError, match="does not fit"):
        replaced(bytes(128), "box_dim", 0, 257)


def test_maps_that_the_host_code_of_cute_writes() -> None:
    """Their first eight words, for sm_100a; the others are whatever the stack had."""
    rest = b"\xa5" * 64
    address = 0x561446CCB630 & ~15
    bf16 = [address, 0x2000246512, 0, 0, 0x1FF000000FF, 0, 0x3F00000000000000, 0x7F]
    raw = b"".join(word.to_bytes(8, "little") for word in bf16) + rest
    expected = TensorMapFields(
        BY_NAME["bf16"], address, (256, 512), (512,), (64, 128), swizzle=3, promotion=2
    )
    assert decode(raw) == expected
    tf32 = [address, 0x20000D6392, 0, 0, 0x7F0000007F, 0, 0x1F00000000000000, 0x1F]
    raw = b"".join(word.to_bytes(8, "little") for word in tf32) + rest
    expected = TensorMapFields(
        BY_NAME["tf32"], address, (128, 128), (512,), (32, 32), swizzle=3, atom=1, promotion=2
    )
    assert decode(raw) == expected
    for code, name in ((0x800046612, "b4x16_p64"), (0xC00046692, "b6x16_p32")):
        packed = [address, code, 0, 0, 0xFF000000FF, 0, 0x7F00000000000000, 0x7F]
        found = decode(b"".join(word.to_bytes(8, "little") for word in packed) + rest)
        bits = 4 if name == "b4x16_p64" else 6
        assert found == TensorMapFields(
            BY_NAME[name], address, (256, 256), (32 * bits,), (128, 128), swizzle=3, promotion=2
        )
