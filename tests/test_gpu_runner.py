"""tests/gpu/run.py: its table, and that a failure, a crash and a time limit are told apart; on
groups made up here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import run as runner

FILES = {
    "test_good_gpu.py": (
        "import pytest\n"
        "\n"
        "def test_a(): pass\n"
        "\n"
        "def test_b(): pass\n"
        "\n"
        "def test_c(): pytest.skip('needs 2 GPUs')\n"
    ),
    "test_bad_gpu.py": "def test_a(): assert 1 == 2, 'planted'\n",
    "test_gone_gpu.py": "import os\n\ndef test_a(): os._exit(7)\n",
    "test_leaving_gpu.py": (
        "import subprocess, sys\n"
        "\n"
        "def test_a():\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(20)'], stderr=1)\n"
    ),
    "test_slow_gpu.py": "import time\n\ndef test_a(): time.sleep(100)\n",
}


@pytest.mark.slow
def test_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(runner, "FOLDER", tmp_path)
    assert (
        runner.main(
            ["--groups", "good,bad,gone", "--jobs", "3", "--workers", "1", "-p", "no:cacheprovider"]
        )
        == 1
    )
    said = capsys.readouterr().out
    assert "planted" in said.split("group ")[0]
    lines = said[said.index("group ") :].splitlines()
    rows = {line.split()[0]: line.split() for line in lines}
    assert rows["good"][1:4] == ["2", "0", "1"]
    assert "1 × skipped: needs 2 GPUs" in "\n".join(lines)
    assert rows["bad"][1:4] == ["0", "1", "0"]
    assert "pytest ended with 7 and no report" in " ".join(rows["gone"])
    assert rows["all"][1:4] == ["2", "1", "1"]


@pytest.mark.slow
def test_a_file_is_ended_at_the_time_limit_and_none_is_started_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_slow_gpu.py").write_text(FILES["test_slow_gpu.py"])
    monkeypatch.setattr(runner, "FOLDER", tmp_path)
    given = ["--limit", "1", "--workers", "1", "-p", "no:cacheprovider"]
    assert runner.main(given) == 1
    assert "not started: the time limit was reached" in capsys.readouterr().out
    monkeypatch.setattr(runner, "LEAST", 0)
    assert runner.main(given) == 1
    assert "ended after 1 s: the time limit" in capsys.readouterr().out


@pytest.mark.slow
def test_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_good_gpu.py").write_text(FILES["test_good_gpu.py"])
    (tmp_path / "test_bad_gpu.py").write_text(FILES["test_bad_gpu.py"])
    monkeypatch.setattr(runner, "FOLDER", tmp_path)
    assert runner.main(["--groups", "good", "--workers", "1", "-p", "no:cacheprovider"]) == 0
    assert "bad" not in capsys.readouterr().out
    (tmp_path / "test_idle_gpu.py").write_text(
        "import pytest\n\ndef test_a(): pytest.skip('no CUDA driver')\n"
    )
    assert runner.main(["--groups", "idle", "--workers", "1", "-p", "no:cacheprovider"]) == 1
    assert "nothing ran on a GPU" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        runner.main(["--groups", "nothing"])
    assert "has nothing in its name" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_that_outlives_pytest_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_leaving_gpu.py").write_text(FILES["test_leaving_gpu.py"])
    monkeypatch.setattr(runner, "FOLDER", tmp_path)
    given = ["--limit", "15", "--workers", "1", "-s", "-p", "no:cacheprovider"]
    assert runner.main(given) == 0
    assert "the time limit" not in capsys.readouterr().out
