"""Copies of rows that begin anywhere."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tilepipe.ops.torch import copies, products  # noqa: E402

BF16 = torch.bfloat16


def matrix(rows: int, columns: int, stride: int, dtype: Any = BF16, first: int = 0) -> Any:
    """Random values in rows that begin `stride` elements after each other."""
    whole = torch.randn(rows * stride + first + 8, generator=torch.Generator().manual_seed(0))
    return whole.to(dtype)[first:].as_strided((rows, columns), (stride, 1))


@pytest.mark.parametrize(
    ("columns", "stride", "first", "word"),
    [
        (516, 520, 0, torch.int64),
        (516, 518, 0, torch.int32),
        (516, 516, 2, torch.int32),
        (515, 515, 0, BF16),
        (513, 520, 0, BF16),  # the last element of a row is alone
        (516, 520, 1, BF16),
    ],
)
def test_rows_are_moved_in_the_longest_words_that_they_are_made_of(
    columns: int, stride: int, first: int, word: Any
) -> None:
    x = matrix(9, columns, stride, first=first)
    made = torch.zeros(9, 520, dtype=BF16)
    found = copies.as_words(made[:, :columns], x)
    assert found is not None
    assert found[0].dtype == found[1].dtype == word
    copies.launch(*found)  # simulated
    assert torch.equal(made[:, :columns], x)
    assert not made[:, columns:].any()


def test_a_batch_is_one_matrix_where_its_rows_follow_each_other() -> None:
    x = matrix(12, 33, 33).view(3, 4, 33)
    made = torch.zeros(3, 4, 40, dtype=BF16)[..., :33]
    found = copies.as_words(made, x)
    assert found is not None
    assert found[0].shape == (12, 33)
    copies.launch(*found)
    assert torch.equal(made, x)
    assert copies.as_words(made[:, :3], x[:, :3]) is None
    assert copies.as_words(made.transpose(1, 2), x.transpose(1, 2)) is None


@pytest.mark.parametrize(
    ("shape", "strides", "order", "found"),
    [
        ((40, 33), (1, 41), None, (1, 40)),  # K along the rows, and stays there
        ((40, 33), (1, 41), "row", (40, 1)),
        ((3, 40, 33), (33 * 41, 1, 41), None, (33 * 40, 1, 40)),
        ((40, 33), (33, 1), None, (40, 1)),
        ((40, 33), (66, 2), None, (40, 1)),
    ],
    ids=str,
)
def test_a_copy_that_the_kernel_reads_keeps_the_order(
    shape: tuple[int, ...], strides: tuple[int, ...], order: str | None, found: tuple[int, ...]
) -> None:
    x = torch.randn(33 * 41 * 3 + 99).to(BF16).as_strided(shape, strides)
    form, ready = products.Operand(("a",), x, order=order).prepared()
    assert form is not None
    assert ready is not None
    assert torch.equal(ready, x)
    assert ready.stride() == found
