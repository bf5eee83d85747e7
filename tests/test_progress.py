"""A bar leaves one line behind: in a terminal, in a notebook, in a file; none where nobody asked or it is quiet."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_files import run as command

from shapshift import KNNShapley
from shapshift._progress import progress_bar, report

LINE = r"Valuing: 50/50 in \d+\.\d s \([\d,.]+/s\)"


class Stream(io.StringIO):
    """A text stream that may be a terminal."""

    def __init__(self, terminal: bool = False) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


# What Jupyter puts in the place of sys.stderr.
Notebook = type("OutStream", (Stream,), {"__module__": "ipykernel.iostream"})


def said(stream: Stream, enabled: bool | None, steps: int = 50) -> str:
    with contextlib.redirect_stderr(stream), progress_bar("Valuing", 50, enabled) as advance:
        for _ in range(steps):
            advance(1)
    return stream.getvalue()


def test_a_file_has_one_line_and_no_control_characters() -> None:
    assert re.fullmatch(LINE + r"\n", said(Stream(), True))


@pytest.mark.parametrize(("stream", "enabled"), [(Stream(), None), (Stream(True), False), (Notebook(), False)])
def test_nothing_is_said_unasked(stream: Stream, enabled: bool | None) -> None:
    assert said(stream, enabled) == ""


@pytest.mark.parametrize("enabled", [None, True])
def test_a_notebook_writes_one_line_over_itself(enabled: bool | None) -> None:
    text = said(Notebook(), enabled)
    assert text.count("\n") == 1
    assert re.fullmatch(LINE + r" *\n", text.rpartition("\r")[2])
    assert "\x1b" not in text
    first = text.split("\r")[1]
    assert first.startswith("Valuing: 1/50 in ")


def test_a_run_that_ends_early_says_how_far_it_came() -> None:
    stream = Stream()
    with (
        contextlib.redirect_stderr(stream),
        contextlib.suppress(KeyboardInterrupt),
        progress_bar("Valuing", 50, True) as advance,
    ):
        advance(12)
        raise KeyboardInterrupt
    assert re.fullmatch(r"Valuing: 12/50 in \d+\.\d s.*\n", stream.getvalue())


@pytest.mark.parametrize(
    ("seconds", "took"), [(0.04, "0.0 s"), (59.94, "59.9 s"), (61.0, "1 min 1 s"), (7325.0, "2 h 2 min")]
)
def test_times_are_for_people(seconds: float, took: str) -> None:
    assert f" in {took}" in report("Valuing", 3, 3, seconds)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_shows_a_bar_and_keeps_one_line() -> None:
    import pty

    code = (
        "from shapshift._progress import progress_bar\n"
        "with progress_bar('Valuing', 50, None) as advance:\n"
        "    for _ in range(50): advance(1)\n"
    )
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run([sys.executable, "-c", code], stderr=theirs, stdin=theirs, env=environment, check=False)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # the end of a pseudo-terminal on Linux
        while part := os.read(ours, 65536):
            text += part
    os.close(ours)
    assert done.returncode == 0
    drawn = text.decode()
    assert "━" in drawn
    assert re.fullmatch(LINE, drawn.splitlines()[-1].rpartition("\x1b[2K")[2].lstrip("\r"))
    assert drawn.count("Valuing: ") == 1


def test_an_estimator_leaves_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    model = KNNShapley(1, progress=True).fit([[0.0], [1.0]], [0, 1])
    model.value([[0.0], [1.0], [2.0]], [0, 1, 1])
    assert re.fullmatch(r"Valuing: 3/3 in .* s.*\n", capfd.readouterr().err)


def test_a_quiet_command_says_nothing(tmp_path: Path) -> None:
    for name, step in (("train", 0.0), ("val", 0.5)):
        rows = "".join(f"{at + step},{'uv'[at % 2]}\n" for at in range(20))
        (tmp_path / f"{name}.csv").write_text(f"a,y\n{rows}")
    ran = command("value", tmp_path / "train.csv", tmp_path / "val.csv", "--label", "y", "-q", "--out", tmp_path / "o")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
