"""What an export finds in its directory: kernels and launchers that it does not replace unasked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.export import writing
from tilepipe.export.manifest import Manifest, Tensor, read


@tp.kernel(grid=2)
def copied(ctx: tp.Context, a: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
    """Copies 32 numbers in each CTA."""

    @ctx.role("all", warps=1)
    def all_warps() -> None:
        ctx.store(out[ctx.block_id, ctx.lane], ctx.load(a[ctx.block_id, ctx.lane]))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, bytes]:
    a = np.zeros((2, 32), np.float32)
    path = copied.bind(a, a.copy()).export(tmp_path_factory.mktemp("made"))
    return read(path), path.with_suffix(".cubin").read_bytes()


def zeroed(manifest: Manifest) -> Manifest:
    """The kernel as if its last tensor had to hold zeros."""
    *others, last = manifest.parameters
    assert isinstance(last, Tensor)
    return replace(manifest, parameters=(*others, replace(last, zero=True)))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda m: replace(m, sms=100), "its sms is 0, and of this one 100"),
        (lambda m: replace(m, grid=3), "its grid is 2, and of this one 3"),
        (
            zeroed,
            "its out is float32 (2, 32), and of this one float32 (2, 32), zeros at the start",
        ),
    ],
    ids=["sms", "grid", "zero"],
)
def test_a_kernel_that_is_launched_in_another_way_is_not_replaced(
    other: object, said: str, exported: tuple[Manifest, bytes], tmp_path: Path
) -> None:
    manifest, cubin = exported
    assert callable(other)
    path = writing.write(tmp_path, manifest, cubin)
    assert writing.write(tmp_path, manifest, cubin) == path  # the same one once more
    before = path.read_bytes()
    with pytest.raises(tp.ExportError) as error:
        writing.write(tmp_path, other(manifest), cubin)
    assert f"of another kernel: {said}" in str(error.value)
    assert path.read_bytes() == before
    writing.write(tmp_path, other(manifest), cubin, replace=True)
    assert path.read_bytes() != before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int mine;\n", "is not the launcher that tilepipe writes"),
        (None, "is the launcher of format 1, and this version of tilepipe writes format "),
    ],
    ids=["mine", "older"],
)
def test_a_launcher_that_others_need_is_not_replaced(
    text: str | None, said: str, exported: tuple[Manifest, bytes], tmp_path: Path
) -> None:
    manifest, cubin = exported
    header = tmp_path / "tilepipe_launch.h"
    ours = (writing.LAUNCHER / header.name).read_text(encoding="utf-8")
    older = ours.replace("#define TILEPIPE_FORMAT 2", "#define TILEPIPE_FORMAT 1")
    header.write_text(older if text is None else text, encoding="utf-8")
    with pytest.raises(tp.ExportError) as error:
        writing.write(tmp_path, manifest, cubin)
    assert said in str(error.value)
    assert "--replace" in str(error.value)
    assert [x.name for x in tmp_path.iterdir()] == [header.name]
    writing.write(tmp_path, manifest, cubin, replace=True)
    assert header.read_text(encoding="utf-8") == ours
    header.write_text(ours + "\n", encoding="utf-8")  # of this format, from another version
    writing.write(tmp_path, manifest, cubin)
    assert header.read_text(encoding="utf-8") == ours
