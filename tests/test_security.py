"""What SECURITY.md says is executed, and is not."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilepipe as tp
from tests.export.test_manifest import a_gemm
from tests.support.command import tilepipe_in
from tilepipe import ptx
from tilepipe.check.counterexamples.saved import Saved, write
from tilepipe.check.verdict import Fault
from tilepipe.cli import completion
from tilepipe.ptx.compiler import compiled_function

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
# Modules that open connections, or that start programs.
NETWORK = {"socket", "ssl", "http", "urllib", "ftplib", "smtplib", "asyncio", "requests", "httpx"}
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
MARK = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').write_text('')\n"


def command(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tilepipe", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_file_is_executed_and_leaves_no_cache(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("rows = 3\n")
    (tmp_path / "own.py").write_text(f"{MARK}import beside\nprogram = beside.rows\n")
    done = command("check", "own.py:program", cwd=tmp_path)
    assert "an int" in done.stderr  # `beside` was found, and is no program
    assert (tmp_path / "own.ran").exists()
    assert not list(tmp_path.glob("__pycache__/own*"))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["own.py:program", "gemm"])
def test_a_counterexample_names_the_file_that_is_executed(what: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MARK)
    file, colon, name = what.rpartition(":")
    saved(f"{tmp_path / file}:{name}" if colon else what, tmp_path / "saved.json")
    done = tilepipe_in(["replay", "saved.json"], tmp_path)
    assert done.returncode == 2  # it has no such instance, or makes no program
    assert (tmp_path / "own.ran").exists() == (what != "gemm")


def saved(what: str, path: Path) -> None:
    """As `tilepipe check --save` writes it, of an instance that no kernel has."""
    fault = Fault("RaceError", "races", "a.py:1", (), ())
    write(path, Saved(what, (), 99, "none", "practice", "0" * 16, fault))


def test_completing_a_word_runs_nothing(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(f"{MARK}def program(): ...\n")
    assert completion.files(f"{own}:") == [f"{own}:program"]
    assert not own.with_suffix(".ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../gemm", "/tmp/gemm", "", "a/b"])
def test_a_manifest_cannot_name_a_file_elsewhere(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    manifest = a_gemm().export(folder)
    (folder / "gemm.cubin").rename(tmp_path / "gemm.cubin")
    body = json.loads(manifest.read_text()) | {"name": name}
    del body["sha256"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    body["sha256"] = hashlib.sha256(text.encode()).hexdigest()  # who writes one can do this, too
    manifest.write_text(json.dumps(body))
    with pytest.raises(tp.ExportError, match="names its files"):
        tp.load_exported(manifest)


def test_names_of_ptx_are_in_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = []

    def seen(source: str, *rest: Any) -> Any:
        sources.append(source)
        return compile(source, *rest)

    monkeypatch.setattr(compiled_function, "compile", seen, raising=False)
    text = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry evil_kernel(.param .u64 evil_parameter) {
    .reg .b32 %evil_r<4>;
    .reg .b64 %evil_d<4>;
    .reg .pred %evil_p<2>;
    .shared .align 4 .b8 evil_shared[128];
    ld.param.u64 %evil_d1, [evil_parameter];
    mov.u32 %evil_r1, evil_shared;
    mov.u32 %evil_r2, 7;
    st.shared.u32 [%evil_r1], %evil_r2;
    setp.eq.u32 %evil_p1, %evil_r2, 7;
    @%evil_p1 bra evil_label;
    trap;
evil_label:
    st.global.u32 [%evil_d1], %evil_r2;
    ret;
}
"""
    launch = ptx.load(text)["evil_kernel"].bind([bytes(8)], grid=1, block=32)
    with pytest.raises(tp.TilepipeError):  # there is no memory at address 0
        launch.run()
    assert len(sources) > 1
    assert [line for source in sources for line in source.splitlines() if "evil" in line] == []


def test_a_name_that_is_markup_is_text_in_a_notebook() -> None:
    hostile = "<img src=x onerror=alert(1)>"

    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        @ctx.role("all", warps=1)
        def all_() -> None:
            ctx.print(hostile)

    program = k.bind()
    run = program.run()
    k.function.__doc__ = hostile
    for page in (
        k._repr_html_(),
        program._repr_html_(),
        run._repr_html_(),
        program.check()._repr_html_(),
    ):
        assert hostile not in page


@pytest.mark.slow
def test_nothing_opens_a_connection() -> None:
    found = set()
    named = re.compile(rf"\b(?:{'|'.join(NETWORK)})\b")
    for path in (SRC / "tilepipe").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if named.search(text) else ():
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            found |= {(path.name, name) for name in names if name.split(".")[0] in NETWORK}
    assert found == set()


@pytest.mark.slow
def test_the_plugin_imports_tilepipe_when_a_fixture_is_asked_for(tmp_path: Path) -> None:
    code = "import sys, pytest_tilepipe; assert 'tilepipe' not in sys.modules"
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, cwd=tmp_path)


def test_every_command_that_executes_a_file_is_named() -> None:
    from tilepipe.cli.common import app

    executing = set()
    for registered in app.registered_commands:
        function = registered.callback
        assert function is not None
        parameters = function.__annotations__
        if "what" in parameters or "against" in parameters or function.__name__ == "replay":
            executing.add(registered.name or function.__name__)
    assert "check" in executing
    assert [name for name in executing if f"`{name}`" not in PAGE and f" {name}" not in PAGE] == []
