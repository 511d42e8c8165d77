"""The adapters, given what the compilers note of recorded kernels, pass what the records have; and
the records are what the installed compilers give.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ptx.foreign.launching import launch, records, text
from tests.ptx.foreign.problems import problem
from tilepipe import ptx
from tools.foreign import record

_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
# with tensor maps, packed 4-bit floats, scratch memory, pointers, and pairs of CTAs
_STORED = (
    "triton_gemm_tma_sm100", "triton_gemm_mxf8_f4_sm100", "triton_gemm_device_maps_sm90",
    "triton_softmax_sm90", "gluon_pair_product_bf16_sm100", "triton_gemm_mxf8_scales_by_tma_sm100",
)  # fmt: skip


def compiled_by_triton(name: str) -> Any:
    """A recorded kernel as `triton.compile` returns it, as far as the adapter looks at it."""
    noted = records()[name]
    signature: dict[str, str] = {}
    maps, scratch = [], {}
    for parameter in noted["parameters"]:
        what, kind = parameter["name"], parameter["kind"]
        if kind == "scratch":
            scratch[f"{what}_scratch_size"] = parameter["bytes"]
        elif kind == "map":
            box = parameter["box"]
            signature[what] = f"tensordesc<{parameter['type']}[{','.join(map(str, box))}]>"
            maps.append({
                "block_size": box, "swizzle": _SWIZZLES[parameter["swizzle"]],
                "fp4_padded": parameter["padded_fp4"],
            })  # fmt: skip
        elif kind in ("pointer", "scalar"):
            signature[what] = "*" * (kind == "pointer") + parameter["type"]
    metadata = SimpleNamespace(
        name=noted["entry"], num_warps=noted["block"][0] // 32, num_ctas=noted["cluster"][0],
        shared=noted["smem"], tensordesc_meta=maps, **scratch,
    )  # fmt: skip
    signature |= dict.fromkeys(noted["constants"], "constexpr")
    source = SimpleNamespace(signature=signature, constants=noted["constants"])
    return SimpleNamespace(src=source, asm={"ptx": text(name)}, metadata=metadata)


@pytest.mark.slow
@pytest.mark.parametrize("name", _STORED)
def test_triton_s_notes_give_the_launch_of_the_record(name: str) -> None:
    given = problem(name)
    made = compiled_by_triton(name)
    wanted = [n for n, kind in made.src.signature.items() if kind != "constexpr"]
    arguments = {n: given.values[n] for n in wanted}
    found = ptx.from_triton(made, **arguments, grid=given.grid)
    expected = launch(name, given)
    for attribute in ("grid", "block", "cluster", "smem"):
        assert getattr(found, attribute) == getattr(expected, attribute)
    assert found.parameters == expected.parameters


# -- live ------------------------------------------------------------------------------
# What a compiler says of its own next version is no concern of a test of this one.
live = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def _require(package: str, compiler: str) -> None:
    """Skips the test where the records are not by the compiler that is installed."""
    try:
        installed = version(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    stored = {r["compiler"] for r in records().values() if r["compiler"].startswith(compiler)}
    if stored != {f"{compiler} {installed}"}:
        pytest.skip(f"the records are by {', '.join(stored)}, and {installed} is installed")


def _code(ptx: str) -> str:
    """PTX without comments and lines of the source, which change with what stands before."""
    return re.sub(r"\t\.loc\t[^\n]*\n|[ \t]*//[^\n]*", "", ptx)


def _same(recorded: Any) -> None:
    stored = re.sub(r"^//.*\n", "", text(recorded.name), count=1)
    same = _code(record.kept(recorded.ptx)) == _code(stored)
    assert same, f"{recorded.name} is not what its compiler gives"


@live
@pytest.mark.thorough
def test_records_are_what_cute_gives_and_its_host_code_launches() -> None:
    _require("nvidia-cutlass-dsl", "CuTe DSL")
    from tools.foreign import compile_cute

    for source in compile_cute.sources():
        recorded = compile_cute.recorded(source)
        _same(recorded)
        given = problem(recorded.name)
        arguments = [given.values[name] for name in source.tensors]
        made = compile_cute.compiled(source)
        ptx.from_cute(made, *arguments, *source.numbers).run(given.seed)
        given.verify()


@live
@pytest.mark.thorough
@pytest.mark.parametrize("arch", [90, 100])
def test_records_are_what_triton_gives(arch: int) -> None:
    _require("triton", "Triton")
    from tools.foreign import compile_triton

    for source in compile_triton.sources(arch):
        _same(compile_triton.compiled(source, arch))
