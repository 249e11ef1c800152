"""Only ordinary files are written: whole or not at all, through links, never two outputs into one."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
from run_cli import rackfit, refused

from rackfit.cli import app
from rackfit.cli.streams import usable_streams
from rackfit.documents.output import check_writable, say, write_folder, write_whole
from topology.errors import InstanceError, VerificationError

NEW = ("new", "--model", "llama-3.1-8b", "--cluster", "hgx-h100")


@pytest.fixture
def taken(tmp_path: Path) -> dict[str, Path]:
    """Things that are no ordinary file that may be written, by name."""
    found = {name: tmp_path / name for name in ("pipe", "read-only", "folder", "loop", "link")}
    os.mkfifo(found["pipe"])
    found["read-only"].write_text("kept")
    found["read-only"].chmod(0o444)
    found["folder"].mkdir()
    found["loop"].symlink_to(found["loop"])
    found["link"].symlink_to("/dev/null")
    return {**found, "device": Path("/dev/null"), "deep": tmp_path / "no" / "folder"}


@pytest.mark.parametrize("what", ["pipe", "read-only", "folder", "loop", "link", "device", "deep"])
def test_what_is_no_ordinary_file_is_refused_and_kept(what: str, taken: dict[str, Path]) -> None:
    path = taken[what]
    before = os.lstat(path) if what != "deep" else None
    for attempt in (lambda: check_writable(path), lambda: write_whole("text", path)):
        with pytest.raises(InstanceError):
            attempt()
    if before is not None:
        after = os.lstat(path)
        assert (before.st_ino, before.st_mode, before.st_size) == (
            after.st_ino,
            after.st_mode,
            after.st_size,
        )
    assert not [name for name in os.listdir(taken["pipe"].parent) if name.startswith(".")]


def test_a_link_is_followed_and_modes_are_kept(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real"
    real.parent.mkdir()
    real.write_text("old")
    real.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(real)
    write_whole("new", link)
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "elsewhere" / "made")
    write_whole("new", dangling)
    assert (tmp_path / "elsewhere" / "made").read_text() == "new"
    folder = tmp_path / "folder"
    (tmp_path / "elsewhere" / "exports").mkdir()
    folder.symlink_to(tmp_path / "elsewhere" / "exports")
    write_folder({"a": "1"}, folder)
    assert folder.is_symlink()
    assert (folder / "a").read_text() == "1"


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("kept")
    os.link(tmp_path / "a", tmp_path / "same")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for other in ("a", "same", "link", "x/../a"):
        (tmp_path / "x").mkdir(exist_ok=True)
        with pytest.raises(InstanceError, match="is written twice"):
            check_writable(tmp_path / "a", tmp_path / other)
        with pytest.raises(InstanceError, match="is read, too"):
            check_writable(tmp_path / other, besides=(tmp_path / "a",))
    with pytest.raises(InstanceError, match="is written twice"):
        check_writable(tmp_path / "new", tmp_path / "new")
    check_writable(tmp_path / "new", tmp_path / "other", besides=(Path("a\0b"), None))
    question = ("solve", "--model", "llama-3.1-8b", "--cluster", "hgx-h100")
    refused("is written twice", *question, "--out", "a", "--report", "./a", cwd=tmp_path)
    assert (tmp_path / "a").read_text() == "kept"


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", ""])
def test_files_of_a_folder_stay_inside(name: str, tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="is no path inside"):
        write_folder({"ok": "1", name: "2"}, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_odd_text_is_written_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_whole("a\udc80b", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"a\\udc80b"
    say("one\x1b[2J\ntwo\r")
    assert capsys.readouterr().err == "one\\x1b[2J\ntwo\\r\n"


def test_a_reader_who_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    for words in (("catalogue", "tiers"), ("model", "llama-3.1-8b"), ("--help",), NEW):
        line = " ".join([sys.executable, "-m", "rackfit", *words])
        assert os.system(f'bash -c "set -o pipefail; {line} 2>{tmp_path}/err | true"') == 0
        assert (tmp_path / "err").read_text() == ""


@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"])
@pytest.mark.parametrize("words", [("catalogue", "tiers"), ("model", "llama-3.1-8b", "--json")])
def test_an_output_that_cannot_be_written_is_one_message(
    words: tuple[str, ...], stdout: str, tmp_path: Path
) -> None:
    line = " ".join([sys.executable, "-m", "rackfit", *words])
    assert os.waitstatus_to_exitcode(os.system(f"{line} {stdout} 2>{tmp_path}/err")) == 2
    said = (tmp_path / "err").read_text()
    assert said.startswith("rackfit: stdout: ")
    assert len(said.splitlines()) == 1


def test_closed_descriptors_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    usable_streams()
    assert sys.stdout is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        print("x")
    print("x", file=sys.stderr)
    sys.stderr.close()


def _broken() -> int:
    raise ZeroDivisionError("a fault\nof ours")


def _contradicted() -> int:
    from rackfit.cli.app import _unexpected

    return _unexpected(VerificationError("the bound is above the cost"))


@pytest.mark.parametrize("fault", [_broken, _contradicted])
def test_an_unexpected_error_is_exit_4_and_a_file(
    fault: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(app, "run", fault)
    monkeypatch.setattr(sys, "argv", ["rackfit", "model", "secret\x1b"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 4
    said = capsys.readouterr().err
    assert said.count("\n") <= 2
    assert said.startswith("rackfit: internal error: ")
    (details,) = tmp_path.iterdir()
    assert str(details) in said
    text = details.read_text()
    assert "versions: " in text
    assert "'secret\\x1b'" in text
    assert "ZeroDivisionError" in text or "VerificationError" in text
    monkeypatch.setenv("RACKFIT_DEBUG", "1")
    with pytest.raises((ZeroDivisionError, VerificationError)):
        app.main()


def test_version_and_completion() -> None:
    ran = rackfit("--version")
    assert ran.code == 0
    assert ran.out.startswith("rackfit 0.")
    shown = rackfit(_RACKFIT_COMPLETE="complete_bash", COMP_WORDS="rackfit ex", COMP_CWORD="1")
    assert shown.out.split() == ["explain", "export"]
    assert "Traceback" not in rackfit("--debug", "catalogue", "chips").err


@pytest.mark.parametrize("name", ["page.pdf", "page.PNG", "page.json"])
def test_a_page_is_not_written_under_another_kind_of_name(name: str, tmp_path: Path) -> None:
    """HTML had been written into it."""
    with pytest.raises(InstanceError) as found:
        check_writable(page=tmp_path / name)
    (problem,) = found.value.problems
    assert problem.message == "a page is HTML: name it page.html; a browser prints it as PDF"
    check_writable(tmp_path / name, page=tmp_path / "page")


def test_help_has_its_short_name() -> None:
    for words in ((), ("solve",), ("export",)):
        short, long = (rackfit(*words, one) for one in ("-h", "--help"))
        assert (short.code, short.out) == (long.code, long.out) == (0, short.out)
