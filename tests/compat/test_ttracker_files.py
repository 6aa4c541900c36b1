"""Log files: one a process and thread, whole lines, nothing lost, nothing made too early, and never in the way."""

import logging
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from torchglass.compat.ttracker import auto_diff, h4logger, log2file, logger
from torchglass.compat.ttracker.output import LineFiles


@pytest.fixture
def handler(tmp_path, monkeypatch):
    """A handler on the logger, in an empty folder; the console off, and nobody else listening."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHGLASS_CONSOLE", "0")
    monkeypatch.delenv("LTAG", raising=False)
    monkeypatch.setattr(logger, "handlers", [])
    made = h4logger()
    logger.addHandler(made)
    yield made
    logger.removeHandler(made)


def run(folder, source, *arguments, **environment):
    """A program of its own, started in the folder."""
    program = folder / "program.py"
    program.write_text(textwrap.dedent(source), encoding="utf-8")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHGLASS", "LTAG"))}
    variables |= {"TORCHGLASS_CONSOLE": "0", "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "program.py", *arguments]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_by_pid(folder, tag="NOTAG"):
    """{pid: [lines of each file]}."""
    found = {}
    for path in sorted((folder / "logs" / tag).iterdir()):
        pid, thread = re.fullmatch(r"process_(\d+)_thread_(\d+)\.log", path.name).groups()
        found.setdefault(int(pid), {})[int(thread)] = path.read_text(encoding="utf-8").splitlines()
    return found


@auto_diff
def double(x):
    return x * 2


# ---------------------------------------------------------------- one process


def test_nothing_is_made_before_the_first_line(handler, tmp_path):
    assert not (tmp_path / "logs").exists()
    log2file("first")
    assert handler.files.path() == tmp_path / "logs" / "NOTAG" / (
        f"process_{os.getpid()}_thread_{threading.get_native_id()}.log"
    )
    assert handler.files.path().read_text() == "first\n"


def test_importing_makes_nothing(tmp_path):
    run(tmp_path, "import torchglass.compat.ttracker")
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def test_without_a_handler_nothing_is_written(tmp_path):
    out = run(tmp_path, "from torchglass.compat.ttracker import log2file; log2file('said')", TORCHGLASS_CONSOLE="1")
    assert out == "said\n"
    assert not (tmp_path / "logs").exists()


def test_calls_and_the_users_own_records_are_in_the_file(handler):
    double(4)
    logger.info("by %s", "hand")
    lines = handler.files.path().read_text().splitlines()
    assert lines[1:3] == ["├─ input [Var] x@0 value: 4", "└─ output value: 8"]
    assert lines[-1] == "by hand"
    assert len(lines) == 5


def test_the_head_is_written_before_the_function_runs(handler):
    @auto_diff
    def looks(x):
        return handler.files.path().read_text().splitlines()

    assert len(looks(1)) == 2


@pytest.mark.parametrize(
    ("tag", "folder"),
    [
        ("run 1/../x", "run_1_.._x"),
        ("../..", "_.."),
        ("..", "NOTAG"),
        ("", "NOTAG"),
        ("a\x00b", None),
        ("実験", "実験"),
        ("x" * 500, "x" * 100),
    ],
)
def test_the_tag_is_made_safe_for_a_file_name(tag, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if folder is None:
        with pytest.raises(ValueError, match="null byte"):
            monkeypatch.setenv("LTAG", tag)
        return
    monkeypatch.setenv("LTAG", tag)
    made = h4logger()
    assert made.files.folder == tmp_path / "logs" / folder
    made.files.write("x\n")
    assert made.files.path().exists()


def test_a_change_of_directory_does_not_move_the_log(handler, tmp_path, monkeypatch):
    log2file("one")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    threading.Thread(target=log2file, args=("two",)).start()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_other_handlers_formats_levels_and_filters_are_honoured(handler, tmp_path):
    records = []

    class Keeps(logging.Handler):
        def emit(self, record):
            records.append((record.levelname, record.getMessage()))

    other = Keeps()
    logger.addHandler(other)
    try:
        log2file("100 %s\nsecond")
        assert records == [("INFO", "100 %s"), ("INFO", "second")]
        assert handler.files.path().read_text() == "100 %s\nsecond\n"
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        log2file("formatted")
        assert handler.files.path().read_text().splitlines()[-1] == "INFO formatted"
        handler.setFormatter(None)
        handler.addFilter(lambda record: False)
        log2file("filtered")
        handler.filters.clear()
        handler.setLevel(logging.ERROR)
        log2file("below the level")
        assert handler.files.path().read_text().splitlines()[-1] == "INFO formatted"
    finally:
        logger.removeHandler(other)


def test_a_disabled_logger_writes_nothing(handler, monkeypatch):
    monkeypatch.setattr(logger, "disabled", True)
    logger._cache.clear()
    log2file("nothing")
    assert not handler.files.path().exists()
    logger._cache.clear()


def test_each_thread_has_its_own_file_and_closes_it(handler, tmp_path):
    def opened():
        return [link for link in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(link)]

    barrier = threading.Barrier(5)

    def work(number):
        for _ in range(50):
            double(number)
        barrier.wait()
        barrier.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    barrier.wait()
    assert len(opened()) == 4
    barrier.wait()
    for thread in threads:
        thread.join()
    assert opened() == []
    (files,) = files_by_pid(tmp_path).values()
    assert set(files) == {thread.native_id for thread in threads}
    for lines in files.values():
        assert len(lines) == 200
        assert len({line for line in lines if "input" in line}) == 1, "no line of another thread"


# ---------------------------------------------------------------- what cannot be written


def test_a_folder_that_cannot_be_made_is_reported_once_and_the_program_continues(handler, tmp_path):
    (tmp_path / "logs").write_text("a file in the way")
    with pytest.warns(RuntimeWarning, match="cannot write its log") as told:
        assert [double(1), double(2)] == [2, 4]
    assert len(told) == 1
    assert "Run it from a folder that can be written" in str(told[0].message)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(handler, tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.warns(RuntimeWarning, match="Permission denied"):
            double(1)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported_once_and_the_program_continues(handler):
    handler.files.folder.mkdir(parents=True)
    handler.files.path().symlink_to("/dev/full")
    with pytest.warns(RuntimeWarning, match="No space left") as told:
        assert [double(1), double(2)] == [2, 4]
    assert len(told) == 1


@pytest.mark.filterwarnings("error")
def test_warnings_as_errors_do_not_reach_the_program(handler, tmp_path):
    (tmp_path / "logs").write_text("a file in the way")
    assert double(1) == 2


def test_a_write_that_takes_a_part_is_finished(tmp_path, monkeypatch):
    write = os.write
    files = LineFiles(tmp_path)
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    files.write("ünïcode and \udc80 line\n")
    monkeypatch.undo()
    assert files.path().read_text(encoding="utf-8") == "ünïcode and \\udc80 line\n"


def test_a_fork_without_hooks_is_noticed_by_the_process_id(tmp_path, monkeypatch):
    files = LineFiles(tmp_path)
    files.write("the parent's\n")
    monkeypatch.setattr(os, "getpid", lambda: 4_000_000)
    files.write("the child's\n")
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["the child's\n", "the parent's\n"]


# ---------------------------------------------------------------- processes

LOADER = """
    import os, sys
    import torch
    from torch.utils.data import DataLoader, Dataset
    from torchglass.compat.ttracker import auto_diff, h4logger, logger

    logger.addHandler(h4logger())

    class Squares(Dataset):
        def __len__(self):
            return 12

        @auto_diff
        def __getitem__(self, index):
            return torch.tensor([index, index * index, os.getpid()])

    @auto_diff
    def epoch(loader):
        return [row for batch in loader for row in batch.tolist()]

    if __name__ == "__main__":
        data = Squares()
        data[3]
        for row in epoch(DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])):
            print(*row)
        print(os.getpid())
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_workers_of_a_data_loader(method, tmp_path):
    *rows, parent = run(tmp_path, LOADER, method).splitlines()
    items = {int(index): int(pid) for index, _, pid in map(str.split, rows)}
    files = files_by_pid(tmp_path)
    assert set(files) == {int(parent), *items.values()}
    for pid in set(items.values()):
        lines = [line for each in files[pid].values() for line in each]
        told = [int(line.rpartition(" ")[2]) for line in lines if "input [Var] index@0" in line]
        assert told == [index for index, worker in items.items() if worker == pid]
        assert lines[0].startswith("┌── [program.py:14] function [Squares.__getitem__] called at "), "a tree of its own"
        assert sum("└─ time Squares.__getitem__" in line for line in lines) == len(told)
    (own,) = files[int(parent)].values()
    assert sum("Squares.__getitem__" in line for line in own) == 2, "the one call of the parent's own"
    assert own[-1].startswith("└─ time epoch ")


POOL = """
    import multiprocessing, os, sys
    from torchglass.compat.ttracker import auto_diff, h4logger, logger

    logger.addHandler(h4logger())

    @auto_diff
    def square(x):
        return x * x, os.getpid()

    if __name__ == "__main__":
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            for value, pid in pool.map(square, range(20)):
                print(value, pid)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pool_of_processes(method, tmp_path):
    rows = [tuple(map(int, line.split())) for line in run(tmp_path, POOL, method, LTAG="pool").splitlines()]
    files = files_by_pid(tmp_path, "pool")
    assert set(files) == {pid for _, pid in rows}
    for pid, threads in files.items():
        (lines,) = threads.values()
        told = [int(line.rpartition(" ")[2]) for line in lines if "output[0]" in line]
        assert sorted(told) == sorted(value for value, worker in rows if worker == pid)


KILLED = """
    import os, signal
    from torchglass.compat.ttracker import auto_diff, h4logger, log2file, logger

    logger.addHandler(h4logger())
    log2file("the parent's")

    @auto_diff
    def dies(n):
        for i in range(n):
            log2file(f"line {i}")
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        dies(39)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    print(child, os.getpid())
"""


def test_a_killed_worker_loses_nothing_that_it_wrote(tmp_path):
    child, parent = map(int, run(tmp_path, KILLED).split())
    files = files_by_pid(tmp_path)
    (lines,) = files[child].values()
    assert lines[2:] == [f"line {i}" for i in range(39)]
    assert lines[1] == "├─ input [Var] n@0 value: 39"
    assert list(files[parent].values()) == [["the parent's"]]


FORKS = """
    import os, threading, time, warnings
    from torchglass.compat.ttracker import auto_diff, h4logger, logger

    warnings.simplefilter("ignore")
    logger.addHandler(h4logger())
    stop = threading.Event()

    @auto_diff
    def work(x):
        return x

    def busy():
        while not stop.is_set():
            work(1)
            time.sleep(0)

    threads = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not os.path.isdir("logs/NOTAG") or len(os.listdir("logs/NOTAG")) < 3:
        time.sleep(0.01)
    time.sleep(0.1)  # a fork in the middle of an open would leave the child a file that nobody knows
    children = []
    for number in range(20):
        child = os.fork()
        if not child:
            work(number)
            logger.info("through logging")
            opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
            os._exit(len([path for path in opened if "thread_" in path]))
        children.append(child)
    deadline = time.monotonic() + 60
    for child in children:
        while not (done := os.waitpid(child, os.WNOHANG))[0]:
            assert time.monotonic() < deadline, "a child hangs"
            time.sleep(0.01)
        files = os.waitstatus_to_exitcode(done[1])
        assert files == 1, f"one open file, its own, not {files}"
    stop.set()
    print(*children)
"""


def test_a_fork_while_other_threads_write(tmp_path):
    children = [int(pid) for pid in run(tmp_path, FORKS).split()]
    files = files_by_pid(tmp_path)
    for number, pid in enumerate(children):
        (lines,) = files[pid].values()
        assert lines[1:3] == [f"├─ input [Var] x@0 value: {number}", f"└─ output value: {number}"]
        assert lines[4:] == ["through logging"]
    (parent,) = set(files) - set(children)
    assert all(line.startswith(("┌──", "├─ input", "└─ ")) for lines in files[parent].values() for line in lines)


def test_an_empty_call_takes_few_steps(tmp_path):
    source = """
        import sys
        from torchglass.compat.ttracker import auto_diff, h4logger, logger
        logger.addHandler(h4logger())

        @auto_diff
        def empty(): pass

        empty()  # the first one opens the file
        calls = []
        sys.setprofile(lambda frame, event, argument: calls.append(event))
        empty()
        sys.setprofile(None)
        print(sum(event in ("call", "c_call") for event in calls))
    """
    # Each is a fraction of a microsecond; the time itself is measured in benchmarks/.
    assert int(run(tmp_path, source)) < 120
