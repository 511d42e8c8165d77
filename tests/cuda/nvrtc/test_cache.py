"""The cache of cubins on disk: never a wrong result, whatever has happened to the files; and
compiling through it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.build import Builder
from tilepipe import _version, cuda
from tilepipe.cuda.nvrtc import cache, compiler
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.program import Kernel

LOG, CUBIN = "ptxas info: größer", b"\x7fELF and the rest"
NAME = cache.key("a kernel")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache is for this test; not there yet."""
    monkeypatch.setenv("TILEPIPE_CACHE_DIR", str(tmp_path / "deep" / "cache"))
    return tmp_path / "deep" / "cache"


@pytest.fixture
def entry(folder: Path) -> Path:
    """The file of the one entry."""
    cache.write(NAME, LOG, CUBIN)
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize(
    ("log", "cubin"),
    [(LOG, CUBIN), ("", b""), ("", CUBIN), (LOG, b""), ("x" * 70_000, bytes(range(256)) * 4000)],
)
def test_what_is_written_is_read(folder: Path, log: str, cubin: bytes) -> None:
    assert cache.read(NAME) is None
    cache.write(NAME, log, cubin)
    assert cache.read(NAME) == (log, cubin)
    cache.write(NAME, "newer", CUBIN)
    assert cache.read(NAME) == ("newer", CUBIN)
    assert [path.name for path in folder.iterdir()] == [f"{NAME}.cubin"]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_name_is_all_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        cache.key(*parts)
        for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("c", "ab"))
    ]
    assert len({*names}) == 6
    assert cache.key("ab", "c") == names[0]
    monkeypatch.setattr(_version, "__version__", "0.0.0")
    assert cache.key("ab", "c") not in names


def test_cut_short_anywhere(entry: Path) -> None:
    whole = entry.read_bytes()
    for length in range(len(whole)):
        entry.write_bytes(whole[:length])
        assert cache.read(NAME) is None, length
    entry.write_bytes(whole)
    assert cache.read(NAME) == (LOG, CUBIN)


def test_one_byte_changed_anywhere(entry: Path) -> None:
    whole = entry.read_bytes()
    for at in range(len(whole)):
        for bit in (0x01, 0x80, 0xFF):
            entry.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            assert cache.read(NAME) is None, (at, bit)


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"\0",
        cache.MAGIC,
        cache.MAGIC + bytes(40),
        b"\x7fELF" + bytes(200),
        b"x" * 1000,
        cache.MAGIC[:-2] + b"2\n" + bytes(100),
    ],
    ids=["empty", "one byte", "head only", "zeros", "bare cubin", "foreign", "other version"],
)
def test_files_that_are_none_of_ours(entry: Path, contents: bytes) -> None:
    entry.write_bytes(contents)
    assert cache.read(NAME) is None
    cache.write(NAME, LOG, CUBIN)
    assert cache.read(NAME) == (LOG, CUBIN)


def test_bytes_after_the_end(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes() + b"\0")
    assert cache.read(NAME) is None


def test_another_entrys_file_under_this_name(entry: Path) -> None:
    other = cache.key("another kernel")
    cache.write(other, "other log", b"other cubin")
    entry.write_bytes((entry.parent / f"{other}.cubin").read_bytes())
    assert cache.read(NAME) is None
    assert cache.read(other) == ("other log", b"other cubin")


def test_a_directory_under_this_name(folder: Path) -> None:
    (folder / f"{NAME}.cubin").mkdir(parents=True)
    folder.chmod(0o700)
    assert cache.read(NAME) is None
    cache.write(NAME, LOG, CUBIN)
    assert cache.read(NAME) is None
    assert len(list(folder.iterdir())) == 1, "the temporary file is gone"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722, 0o702, 0o720])
def test_a_directory_that_others_may_write_to(entry: Path, mode: int) -> None:
    entry.parent.chmod(mode)
    assert cache.read(NAME) is None
    cache.write("other", LOG, CUBIN)
    assert list(entry.parent.iterdir()) == [entry]
    entry.parent.chmod(0o755)
    assert cache.read(NAME) == (LOG, CUBIN)


def test_a_directory_of_another_user(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: entry.stat().st_uid + 1)
    assert cache.read(NAME) is None
    cache.write("other", LOG, CUBIN)
    assert list(entry.parent.iterdir()) == [entry]


def test_no_place_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("TILEPIPE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    cache.write(NAME, LOG, CUBIN)
    assert cache.read(NAME) is None
    monkeypatch.setenv("TILEPIPE_CACHE_DIR", str(tmp_path / "file"))
    cache.write(NAME, LOG, CUBIN)
    assert cache.read(NAME) is None
    assert (tmp_path / "file").read_text() == "not a directory"


@pytest.mark.parametrize("call", ["mkstemp", "replace"])
def test_a_disk_that_refuses(folder: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((tempfile, "mkstemp") if call == "mkstemp" else (os, "replace")), refuse)
    cache.write(NAME, LOG, CUBIN)
    assert list(folder.iterdir()) == []
    assert cache.read(NAME) is None


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEPIPE_CACHE_DIR", "off")
    assert cache.directory() is None
    cache.write(NAME, LOG, CUBIN)
    assert cache.read(NAME) is None
    assert not Path("off").exists()
    monkeypatch.delenv("TILEPIPE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.directory() == tmp_path / "tilepipe"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.directory() == tmp_path / "home" / ".cache" / "tilepipe"

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", staticmethod(homeless))
    assert cache.directory() is None


def test_the_oldest_go_when_it_is_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("0", LOG, CUBIN)
    size = (folder / "0.cubin").stat().st_size
    monkeypatch.setattr(cache, "MAX_BYTES", 3 * size)
    for i in range(1, 6):
        for j in range(i):
            if (folder / f"{j}.cubin").exists():
                os.utime(folder / f"{j}.cubin", (1000 + j, 1000 + j))
        cache.write(str(i), LOG, CUBIN)
    assert sorted(path.name for path in folder.iterdir()) == ["3.cubin", "4.cubin", "5.cubin"]
    (folder / "notes.txt").write_text("x" * 10 * size)
    cache.write("6", LOG, CUBIN)
    assert (folder / "notes.txt").exists(), "what is not an entry is not touched"
    assert cache.read("6") == (LOG, CUBIN)


def test_what_killed_writers_left_goes(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    for name, age in ((".old.tmp", 4000), (".new.tmp", 10)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age,) * 2)
    cache.write(NAME, LOG, CUBIN)
    assert sorted(path.name for path in folder.iterdir()) == [".new.tmp", f"{NAME}.cubin"]


def test_all_entries_are_looked_at_once_in_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of entries that takes longer than a small kernel takes to compile."""
    trims: list[int] = []
    monkeypatch.setattr(cache, "_trim", lambda where: trims.append(len(list(where.iterdir()))))
    for i in range(100):
        cache.write(str(i), LOG, CUBIN)
    assert trims == [1]
    cache.write("large", LOG, bytes(cache.MAX_BYTES // 64))
    cache.write("100", LOG, CUBIN)
    assert trims == [1, 101]


WORKER = """
import random, sys
from tilepipe.cuda.nvrtc import cache
cache.MAX_BYTES = 12_000
me, found = random.Random(int(sys.argv[1])), 0
for _ in range(400):
    i = me.randrange(8)
    log, cubin = f"log {i}" * 40, bytes([i]) * (500 + 400 * i)
    if me.random() < 0.5:
        cache.write(cache.key(str(i)), log, cubin)
    got = cache.read(cache.key(str(i)))
    assert got is None or got == (log, cubin), i
    found += got is not None
print(found)
"""


@pytest.mark.slow
def test_processes_write_read_and_evict_at_once(folder: Path) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(4)
    ]
    said = [worker.communicate(timeout=120) for worker in workers]
    assert [err for _, err in said] == [""] * 4
    assert min(int(out) for out, _ in said) > 50
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 12_000 + 4 * 4000
    assert {path.suffix for path in folder.iterdir()} == {".cubin"}


# -- compiling -------------------------------------------------------------------------


def small() -> Kernel:
    b = Builder()
    b.setup_done()
    with b.role("one", warps=1):
        b.do(ops.SyncWarp)
    return b.finished()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often NVRTC has been called, by what it was to emit."""
    counted: Counter[str] = Counter()
    real: Callable[..., Any] = compiler.nvrtc

    def nvrtc(code: str, filename: str, emit: str, given: tuple[str, ...]) -> Any:
        counted[emit] += 1
        return real(code, filename, emit, given)

    monkeypatch.setattr(compiler, "nvrtc", nvrtc)
    return counted


def test_a_second_compile_does_not_call_nvrtc(folder: Path, calls: Counter[str]) -> None:
    first = cuda.compile(small())
    assert calls == {"cubin": 1}
    assert cuda.compile(small()) == first
    assert calls == {"cubin": 1}
    assert len(list(folder.iterdir())) == 1


@pytest.mark.slow
def test_what_changes_the_machine_code_is_compiled_anew(
    folder: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda.compile(small())
    for n, options in enumerate(
        ({"lineinfo": True}, {"arch": "sm_100a"}, {"debug": True}, {"perturb": 1}), 2
    ):
        for _ in range(2):
            cuda.compile(small(), **options)  # type: ignore[arg-type]
            assert calls["cubin"] == n
    monkeypatch.setattr(compiler, "nvrtc_version", lambda: "99.0")
    cuda.compile(small())
    assert calls["cubin"] == 6
    cuda.compile(small(), emit="ptx")
    cuda.compile(small(), emit="ptx")
    assert calls["ptx"] == 2


@pytest.mark.slow
def test_a_damaged_entry_is_compiled_again_and_repaired(folder: Path, calls: Counter[str]) -> None:
    first = cuda.compile(small())
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    again = cuda.compile(small())
    assert (again.source, again.registers) == (first.source, first.registers)
    assert calls["cubin"] == 2
    assert cuda.compile(small()) == again
    assert calls["cubin"] == 2


def test_losses_are_reported_from_a_cached_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = "\n".join(
        [
            "ptxas         .     8 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads",
            "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored",
            "ptxas info    : Used 168 registers, used 1 barriers",
        ]
    )
    monkeypatch.setattr(compiler, "nvrtc", lambda *_: (log, b"cubin"))
    both = ["spills", "C7508"]
    first = cuda.compile(small(), allow=both)

    def never(*_: object) -> None:
        raise AssertionError("NVRTC is called")

    monkeypatch.setattr(compiler, "nvrtc", never)
    assert cuda.compile(small(), allow=both) == first
    assert (first.registers, first.spill_bytes, first.stack_bytes) == (168, 64, 8)
    with pytest.raises(CompileError, match="ptxas ignored setmaxnreg"):
        cuda.compile(small(), allow=["spills"])
    with pytest.raises(CompileError, match="registers spilled to local memory"):
        cuda.compile(small(), allow=["C7508"])
