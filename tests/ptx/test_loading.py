"""Finding an entry point by its name, or a part of it, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilepipe as tp
from tilepipe import ptx
from tilepipe.ptx.listing import listing
from tilepipe.ptx.names import readable_name

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
GEMM = "_Z4gemmPKfS0_Pf"
NESTED = "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalEEEvNT_6ParamsE"


def text(*names: str, target: str = "sm_90a") -> str:
    head = HEAD.replace("sm_90a", target)
    return head + "\n".join(f".visible .entry {name}() {{ ret; }}" for name in names) + "\n"


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        (GEMM, "gemm"),
        (NESTED, "cutlass::device_kernel"),
        ("_ZL4gemmv", "gemm"),
        ("_ZN12_GLOBAL__N_14gemmEv", "_GLOBAL__N_1::gemm"),
        ("plain", "plain"),
        ("_Z99short", "_Z99short"),
        ("_Z9999999999999999999999x", "_Z9999999999999999999999x"),
    ],
)
def test_names_of_cpp_without_their_types(name: str, readable: str) -> None:
    assert readable_name(name) == readable


def test_a_part_of_a_name_finds_the_only_entry_that_has_it() -> None:
    kernels = ptx.load(text(GEMM, NESTED, "other"))
    assert kernels["gemmPKf"].name == GEMM
    assert kernels["device_kernel"].name == kernels["cutlass::device_kernel"].name == NESTED
    assert kernels[GEMM].name == GEMM
    assert "device_kernel" not in kernels
    with pytest.raises(tp.PtxError, match=r"'gemm' is in the names of 2 entry points: gemm \("):
        kernels["gemm"]
    with pytest.raises(
        tp.PtxError, match=r"no entry point 'othr'; did you mean 'other'\? It has 3"
    ):
        kernels["othr"]
    with pytest.raises(tp.PtxError, match=r"expected one entry point, and it has 3 entry points"):
        kernels.only()


def test_the_only_entry() -> None:
    assert ptx.load(text("k")).only().name == "k"
    with pytest.raises(tp.PtxError, match="<ptx>: expected one entry point, and it has no entry"):
        ptx.load(HEAD).only()


def test_many_and_long_names_are_cut() -> None:
    kernels = ptx.load(text(*(f"k{i}{'x' * 3000}" for i in range(40))))
    with pytest.raises(tp.PtxError) as raised:
        kernels["y"]
    assert len(str(raised.value)) < 3000
    assert "and 28 more" in str(raised.value)


def test_bytes_of_a_compiler_are_a_text() -> None:
    assert ptx.load(text("k").encode() + b"\0").only().name == "k"
    assert ptx.load(text("k").replace("\n", " ").encode()).only().name == "k"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/dev/zero", "x\0y", "/no/such.ptx", "/", "y" * 9999])
def test_paths_that_are_no_texts(path: str) -> None:
    with pytest.raises(tp.PtxError) as raised:
        ptx.load(path)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100a", "sm_103a"])
def test_targets_that_are_simulated(target: str) -> None:
    chip = ptx.load(text("k", target=target)).only().chip
    assert chip.name == ("B200" if "10" in target else "H200")


@pytest.mark.parametrize("target", ["sm_120a", "sm_110", "sm_101a", "compute_90", "sm_9"])
def test_targets_that_are_not(target: str) -> None:
    with pytest.raises(tp.PtxError, match=rf"\.target {target}: the simulated GPUs are an H200"):
        ptx.load(text("k", target=target))
    path = Path("k.ptx")
    with pytest.raises(tp.PtxError, match="No such file"):
        ptx.load(path)


def test_what_compilers_hand_over() -> None:
    """Bytes of NVRTC end with a NUL; an ObjectCode of cuda.core says what it is."""
    code = pytest.importorskip("cuda.core")
    raw = text("k").encode() + b"\0"
    assert ptx.load(raw).only().name == "k"
    assert ptx.load(code.ObjectCode.from_ptx(raw)).only().name == "k"
    with pytest.raises(tp.PtxError, match="this ObjectCode is cubin, not PTX: compile"):
        ptx.load(code.ObjectCode.from_cubin(b"\x7fELF"))
    with pytest.raises(tp.PtxError, match="machine code"):
        ptx.load(b"\x7fELF\x02\x01")
    with pytest.raises(tp.PtxError, match=r"load takes a text of PTX, .*; got int"):
        ptx.load(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("instruction", "target", "needed"),
    [
        ("tcgen05.wait::ld.sync.aligned;", "sm_90a", "sm_100a"),
        ("tcgen05.wait::ld.sync.aligned;", "sm_100", "sm_100a"),
        ("wgmma.fence.sync.aligned;", "sm_100a", "sm_90a"),
        ("wgmma.fence.sync.aligned;", "sm_90", "sm_90a"),
    ],
)
def test_instructions_that_a_target_lacks(instruction: str, target: str, needed: str) -> None:
    source = text("k", target=target).replace("ret;", f"{instruction} ret;")
    (missing,) = listing(source).entries[0].missing
    said = f"needs .target {needed}, and this is {target}"
    assert missing.reason.endswith(said)
    with pytest.raises(tp.PtxError, match=rf"PTX line 4: .*: {said}"):
        ptx.load(source).only().bind([], grid=1, block=128)


def test_the_zero_byte_that_nvrtc_ends_a_text_with(tmp_path: Path) -> None:
    path = tmp_path / "nul.ptx"
    path.write_bytes(text("k").encode() + b"\0")
    assert ptx.load(path).only().name == "k"
    assert listing(path).modelled


@pytest.mark.parametrize("part", [0, "", None])
def test_what_names_no_entry_point(part: object) -> None:
    with pytest.raises(tp.PtxError, match="an entry point is named by a part of its name"):
        ptx.load(text("k"))[part]  # type: ignore[index]


def test_an_empty_text() -> None:
    with pytest.raises(tp.PtxError, match="the text is empty"):
        ptx.load("")


def test_the_repr_of_a_kernel_is_short() -> None:
    kernels = ptx.load(text(GEMM))
    assert repr(kernels[GEMM]) == "<ptx.Kernel gemm() of <ptx>>"
    assert len(repr(kernels)) < 200


@pytest.mark.parametrize("wrong", [{"timeout": -1}, {"timeout": "1"}, {"seed": "x"}, {"seed": -1}])
def test_options_of_a_run_are_validated(wrong: dict[str, object]) -> None:
    launch = ptx.load(text("k")).only().bind([], grid=1, block=1)
    with pytest.raises(tp.BindError, match=rf"^{next(iter(wrong))} is a"):
        launch.run(**wrong)  # type: ignore[arg-type]
