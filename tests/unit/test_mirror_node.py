"""mirror-node, which the DaemonSets of mirrors run."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner, Result

from jobs.__main__ import chores
from jobs.commands import mirror_node
from jobs.core.mirror_node.files import HostsFile, reconcile
from jobs.core.mirror_node.hosts import hosts_toml
from tests.apis import GIVE_UP_SECONDS, wait_for

MIRROR, UPSTREAM = "http://10.0.0.7:5000", "https://registry-1.docker.io"
DESIRED = hosts_toml("hub", MIRROR, UPSTREAM)
OTHER_TOOL = 'server = "https://registry-1.docker.io"\n'
ARGUMENTS = ("--name=hub", "--host=docker.io", f"--mirror={MIRROR}", f"--upstream={UPSTREAM}")
REMOVE = ("--name=hub", "--host=docker.io", "--remove")
# The command with another interval: it prints one character to stdout before each reconciliation.
WATCHED = """
import sys
from jobs import __main__
from jobs.commands import mirror_node
mirror_node.INTERVAL_SECONDS = float(sys.argv.pop(1))
reconcile = mirror_node.reconcile
mirror_node.reconcile = lambda file: [print(end=".", flush=True), reconcile(file)][1]
__main__.main()
"""
# The command, to which a signal comes during the first check, and is not handled before the pause begins.
SIGNALLED = """
import signal, sys, threading
from jobs import __main__
from jobs.commands import mirror_node
mirror_node.INTERVAL_SECONDS = 3600.0
number = int(sys.argv.pop(1))
def reconcile(file):
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    signal.pthread_kill(threading.get_ident(), number)
    return ""
mirror_node.reconcile = reconcile
__main__.main()
"""


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    """The folder that containerd's config_path is set to."""
    certs = tmp_path / "certs.d"
    certs.mkdir()
    return certs


@pytest.fixture
def path(certs: Path) -> Path:
    """The hosts.toml of docker.io."""
    return certs / "docker.io" / "hosts.toml"


class Running:
    """The command in a process of its own, which has begun its first check."""

    def __init__(self, process: subprocess.Popen[bytes], checks: Path, log: Path) -> None:
        self._process, self._checks, self._log = process, checks, log
        wait_for(lambda: checks.stat().st_size, "the first check", detail=log.read_text)

    def checks_again(self) -> None:
        """Wait until a check that began after this call is complete."""
        before = self._checks.stat().st_size

        def has_checked() -> bool:
            assert self._process.poll() is None, self.lines()
            return self._checks.stat().st_size > before + 1

        wait_for(has_checked, "another check", detail=self._log.read_text)

    def pause(self, seconds: float) -> None:
        """Stop the process, and let it continue, as a virtual machine that is paused does."""
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def lines(self) -> list[str]:
        """Return the lines of its log so far."""
        return self._log.read_text().splitlines()

    def end(self, by: signal.Signals = signal.SIGTERM) -> list[str]:
        """End the process, before its next check and with exit code 0. Return the lines of its log."""
        self._process.send_signal(by)
        assert self._process.wait(20) == 0
        return self.lines()


@contextlib.contextmanager
def running(
    certs: Path, arguments: Sequence[str] = ARGUMENTS, umask: int = -1, interval: float = 0.05
) -> Iterator[Running]:
    """Run the command, which checks its files twenty times a second."""
    words = [sys.executable, "-c", WATCHED, str(interval), "mirror-node", *arguments, f"--certs-dir={certs}"]
    folder = Path(tempfile.mkdtemp(dir=certs.parent))
    checks, log = folder / "checks", folder / "log"
    with (
        checks.open("wb") as stdout,
        log.open("wb") as stderr,
        subprocess.Popen(words, stdout=stdout, stderr=stderr, umask=umask) as process,
    ):
        try:
            yield Running(process, checks, log)
        finally:
            process.kill()


def reconciled(certs: Path, arguments: Sequence[str] = ARGUMENTS) -> list[str]:
    """Run the command until its first check is complete. Return the lines of its log."""
    with mock.patch.object(mirror_node, "serve", lambda file, _state: reconcile(file)):
        done = CliRunner().invoke(chores, ["mirror-node", *arguments, f"--certs-dir={certs}"])
    return done.output.splitlines()


def check(certs: Path, *arguments: str) -> Result:
    return CliRunner().invoke(chores, ["mirror-node", *(arguments or ARGUMENTS), f"--certs-dir={certs}", "--check"])


def put(path: Path, text: str) -> None:
    """Write a file in one step: the command may read it at any time."""
    path.parent.mkdir(exist_ok=True)
    elsewhere = path.parent.parent / f"{path.name}.new"
    elsewhere.write_text(text)
    elsewhere.replace(path)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_the_file_is_written_and_stays_when_the_command_ends(certs: Path, path: Path, by: signal.Signals) -> None:
    assert check(certs).exit_code == 1
    assert not path.parent.exists()
    with running(certs, umask=0o077, interval=mirror_node.INTERVAL_SECONDS) as process:
        wait_for(process.lines, "a message")
        assert process.end(by) == [f"{path} does not exist: written"]

    assert path.read_text() == DESIRED
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o644, 0o755]
    assert [each.name for each in path.parent.iterdir()] == ["hosts.toml"]
    checked = check(certs)
    assert (checked.exit_code, checked.output) == (0, "")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_just_before_the_pause_ends_it(certs: Path, by: signal.Signals) -> None:
    words = [sys.executable, "-c", SIGNALLED, str(int(by)), "mirror-node", *ARGUMENTS, f"--certs-dir={certs}"]
    assert subprocess.run(words, timeout=GIVE_UP_SECONDS, check=False).returncode == 0


def test_a_process_that_was_paused_goes_on(certs: Path) -> None:
    with running(certs) as process:
        for _ in range(5):
            process.pause(0.2)
            process.checks_again()
        assert process.end() == [f"{certs / 'docker.io/hosts.toml'} does not exist: written"]


def test_after_each_check_the_state_has_the_problems_that_are_left(certs: Path, path: Path) -> None:
    state = certs.parent / "state"
    state.write_text("of the container before")
    put(path, OTHER_TOOL)
    with running(certs, (*ARGUMENTS, f"--state={state}")) as process:
        process.checks_again()
        assert state.read_text() == check(certs).output.removeprefix("error: ").strip()
        before = state.stat().st_mtime_ns
        process.checks_again()
        assert state.stat().st_mtime_ns > before, "also if nothing changed: the liveness probe compares the time"
        path.unlink()
        process.checks_again()
        assert state.read_text() == ""
        process.end()


def test_the_name_of_a_folder_in_a_problem_need_not_be_text(certs: Path) -> None:
    """A folder of another user, which the pod has no right to open: the tests may run as root."""
    state = certs.parent / "state"
    problem = os.fsdecode(b"a/\xff/hosts.toml: Permission denied")
    patched = mock.patch.multiple(mirror_node, reconcile=lambda _file: problem, exit_on_signals=mock.DEFAULT, sleep=end)
    with patched, pytest.raises(KeyboardInterrupt):
        mirror_node.serve(HostsFile("hub", "docker.io", certs, DESIRED), state)

    assert state.read_text() == r"a/\udcff/hosts.toml: Permission denied"


def end(_seconds: float) -> None:
    raise KeyboardInterrupt


def test_before_the_first_check_there_is_no_state(certs: Path) -> None:
    state = certs.parent / "state"
    state.write_text("of the container before")

    def reconcile(_file: HostsFile) -> str:
        assert not state.exists()
        raise KeyboardInterrupt

    patched = mock.patch.multiple(mirror_node, reconcile=reconcile, exit_on_signals=mock.DEFAULT)
    with patched, pytest.raises(KeyboardInterrupt):
        mirror_node.serve(HostsFile("hub", "docker.io", certs, DESIRED), state)


def test_a_changed_deleted_or_moved_file_is_written_again(certs: Path, path: Path) -> None:
    changes = (
        lambda: put(path, DESIRED + "# edited\n"),
        path.unlink,
        lambda: path.parent.rename(certs.parent / "elsewhere"),
    )
    with running(certs) as process:
        process.checks_again()
        for change in changes:
            change()
            process.checks_again()
            assert path.read_text() == DESIRED
        lines = process.end()

    missing, edited = f"{path} does not exist: written", f"{path} differs from its desired content: written"
    assert lines == [missing, edited, missing, missing]


def test_a_reader_never_reads_half_a_file(certs: Path, path: Path) -> None:
    other = hosts_toml("other", MIRROR, UPSTREAM)
    contents: set[str] = set()

    def has_read_both() -> bool:
        contents.add(path.read_text())
        return {DESIRED, other} <= contents

    with (
        running(certs, interval=0.001) as one,
        running(certs, ("--name=other", *ARGUMENTS[1:]), interval=0.001) as another,
    ):
        wait_for(path.exists, "the file")
        wait_for(has_read_both, "the files of both mirrors: each takes over that of the other")
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            has_read_both()
        one.end()
        another.end()

    assert contents == {DESIRED, other}


def test_a_file_that_kube_chores_did_not_write_is_never_changed(certs: Path, path: Path) -> None:
    put(path, OTHER_TOOL)
    checked = check(certs)
    assert checked.exit_code == 1
    assert "was not written by kube-chores and is not changed; move it away" in checked.output
    with running(certs) as process:
        process.checks_again()
        process.checks_again()
        assert path.read_text() == OTHER_TOOL
        path.unlink()
        process.checks_again()
        warning, wrote = process.end()
    assert path.read_text() == DESIRED
    assert "move it away" in warning
    assert wrote == f"{path} does not exist: written"


@pytest.mark.parametrize("of", ["hub", "other", None])
def test_only_a_file_of_the_same_mirror_is_removed(certs: Path, path: Path, of: str | None) -> None:
    text = hosts_toml(of, MIRROR) if of else OTHER_TOOL
    put(path, text)
    own = of == "hub"
    assert check(certs, *REMOVE).exit_code == (1 if own else 0)
    assert reconciled(certs, REMOVE) == ([f"{path} still exists: removed"] if own else [])

    assert path.parent.exists() != own
    assert own or path.read_text() == text
    assert check(certs, *REMOVE).exit_code == 0


def test_a_folder_with_other_files_is_not_removed(certs: Path, path: Path) -> None:
    put(path, DESIRED)
    (path.parent / "ca.crt").touch()
    reconciled(certs, REMOVE)

    assert [each.name for each in path.parent.iterdir()] == ["ca.crt"]


def test_a_file_for_an_earlier_host_is_removed(certs: Path, path: Path) -> None:
    """If the upstream of a mirror changes, the old file would send pulls of the old upstream's images to it."""
    before, theirs, others = (certs / name / "hosts.toml" for name in ("quay.io", "ghcr.io", "gcr.io_5000_"))
    put(path, DESIRED)
    put(before, hosts_toml("hub", MIRROR, "https://quay.io"))
    put(theirs, OTHER_TOOL)
    put(others, hosts_toml("other", MIRROR))
    (certs / "file").write_text("")
    (certs / "dangling").symlink_to("nowhere")

    refused = check(certs)
    assert (refused.exit_code, refused.output) == (1, f"error: {before} still exists\n")
    assert reconciled(certs) == [f"{before} still exists: removed"]
    assert check(certs).exit_code == 0
    assert [each.exists() for each in (path, before.parent, theirs, others)] == [True, False, True, True]
    put(before, hosts_toml("hub", MIRROR))
    assert check(certs, *REMOVE).exit_code == 1
    reconciled(certs, REMOVE)
    assert check(certs, *REMOVE).exit_code == 0
    assert [each.exists() for each in (path, before.parent, theirs, others)] == [False, False, True, True]


@pytest.mark.parametrize("arguments", [ARGUMENTS, REMOVE])
def test_temporary_files_of_a_killed_process_are_removed(certs: Path, path: Path, arguments: Sequence[str]) -> None:
    put(path, hosts_toml("hub", "http://10.0.0.8:5000"))
    (path.parent / ".hosts.toml.0badcafe").write_text(DESIRED[:20])
    reconciled(certs, arguments)

    left = [each.name for each in path.parent.iterdir()] if path.parent.exists() else []
    assert left == (["hosts.toml"] if arguments is ARGUMENTS else [])


def test_a_failed_write_is_logged_once_and_tried_again(certs: Path, path: Path) -> None:
    certs.rmdir()
    assert check(certs).exit_code == 1
    with running(certs) as process:
        process.checks_again()
        process.checks_again()
        certs.mkdir()
        process.checks_again()
        warning, wrote = process.end()

    assert warning.startswith(f"warning: {path}: No such file or directory; next attempt in")
    assert wrote == f"{path} does not exist: written"


def test_a_failed_write_leaves_nothing_behind(certs: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    put(path, hosts_toml("hub", "http://10.0.0.8:5000"))
    before = path.read_text()
    monkeypatch.setattr(os, "fsync", full)
    file = HostsFile("hub", "docker.io", certs, DESIRED)

    assert reconcile(file) == f"{path}: No space left on device"
    assert path.read_text() == before
    assert [each.name for each in path.parent.iterdir()] == ["hosts.toml"]


@pytest.mark.parametrize("what", ["link", "fifo", "folder", "linked folder", "file for a folder"])
def test_only_a_plain_file_is_changed(certs: Path, path: Path, what: str) -> None:
    elsewhere = certs.parent / "elsewhere"
    put(elsewhere / "hosts.toml", hosts_toml("hub", "http://10.0.0.8:5000"))
    before = (elsewhere / "hosts.toml").read_text()
    if what == "linked folder":
        path.parent.symlink_to(elsewhere)
    elif what == "file for a folder":
        path.parent.touch()
    else:
        path.parent.mkdir()
        make = {"link": lambda: path.symlink_to(elsewhere / "hosts.toml"), "fifo": lambda: os.mkfifo(path)}
        make.get(what, path.mkdir)()

    checked = check(certs)
    assert checked.exit_code == 1
    assert "is not changed" in checked.output
    assert check(certs, *REMOVE).exit_code == 0
    file = HostsFile("hub", "docker.io", certs, DESIRED)
    assert reconcile(file).endswith("is not changed")
    assert reconcile(file._replace(desired=None)) == ""
    assert path.parent.exists() and (path.exists() or what == "file for a folder")
    assert (elsewhere / "hosts.toml").read_text() == before


def test_a_host_with_a_port_has_the_folder_that_containerd_tries_first(certs: Path) -> None:
    arguments = ("--name=hub", "--host=10.88.0.1:5443", f"--mirror={MIRROR}")
    path = certs / "10.88.0.1_5443_" / "hosts.toml"
    reconciled(certs, arguments)
    assert path.read_text() == hosts_toml("hub", MIRROR)
    assert check(certs, *arguments).exit_code == 0

    (certs / "10.88.0.1:5443").mkdir()
    checked = check(certs, *arguments)
    assert checked.exit_code == 1
    assert f"containerd would no longer read {certs}/10.88.0.1:5443; move it away" in checked.output
    assert check(certs, *arguments, "--remove").exit_code == 1
    path.unlink()
    assert check(certs, *arguments, "--remove").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host=a.io", "--mirror=http://a"], "--name"),
        (["--name=hub", "--mirror=http://a"], "--host"),
        (["--name=hub", "--host=a.io"], "--mirror or --remove is required"),
        (["--name=a.b", "--host=a.io", "--mirror=http://a"], "cannot be the name of a mirror"),
        (["--name=hub", "--host=../a", "--mirror=http://a"], "is not the host of a registry"),
        (["--name=hub", "--host=_default", "--remove"], "is not the host of a registry"),
        (["--name=hub", "--host=", "--remove"], "is not the host of a registry"),
        (["--name=hub", "--host=a.io", "--mirror=a.io"], "is not the URL of a server"),
        (["--name=hub", "--host=a.io", "--mirror=http://a", "--upstream="], "is not the URL of a server"),
    ],
)
def test_a_wrong_command_line_is_refused(certs: Path, arguments: list[str], message: str) -> None:
    for more in ([], ["--check"]):
        result = CliRunner().invoke(chores, ["mirror-node", *arguments, *more, f"--certs-dir={certs}"])
        assert result.exit_code == 2
        assert message in result.output
    assert list(certs.iterdir()) == []


def test_it_imports_no_slow_modules_since_each_probe_starts_it() -> None:
    show = (
        "import sys, jobs.__main__, jobs.commands.mirror_node; print(*{each.partition('.')[0] for each in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    packages = set(done.stdout.split()) - set(sys.stdlib_module_names)

    assert {name for name in packages if not name.startswith(("__", "_virtualenv", "_distutils"))} <= {"click", "jobs"}
