"""`torchglass values` lists what was kept, and writes one of them in a format that others read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import torchglass as tg
from torchglass.cli import main


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five tensors and an array, two under the same name."""
    path = tmp_path_factory.mktemp("values") / "run.trace"
    with tg.record(to=path):
        tg.mark("q", torch.arange(6.0).reshape(2, 3))
        tg.mark("q", torch.arange(6.0).reshape(2, 3).t() + 1)
        tg.mark("half", torch.ones(2, dtype=torch.bfloat16))
        tg.mark("complex", torch.ones(2, dtype=torch.complex64))
        tg.mark("array", np.arange(3))
        tg.mark("\x1b[31m", torch.tensor(True))
    return path


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["values", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("torchglass: ")
    assert said.err.count("\n") == 1
    return said.err


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """The cells of each row."""
    assert main(["values", *arguments]) == 0
    first, *rows, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["id", "name", "module", "shape", "step", "at"]
    assert last == f"{len(rows)} tensor{'' if len(rows) == 1 else 's'} kept"
    return [re.split(r"\s{2,}", line) for line in rows]


def test_the_list(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(capsys, str(bundle))
    assert [row[2] for row in rows] == ["f32[2, 3]", "f32[3, 2]", "bf16[2]", "c64[2]", "i64[3] numpy", "b8[]"]
    assert [row[1] for row in rows] == ["q", "q", "half", "complex", "array", "\\x1b[31m"]
    assert len(listed(capsys, str(bundle), "--name", "q")) == 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that a model of two layers took and gave."""
    path = tmp_path_factory.mktemp("model") / "run.trace"
    layers = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    with tg.record(to=path, values="all"):
        layers(torch.ones(3, 4))
    return path


def test_each_row_says_where_a_tensor_comes_from(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(capsys, str(model), "--only", "kind=module", "--only", "module=1")
    assert [row[1:4] for row in rows] == [["input", "1", "f32[3, 8]"], ["out", "1", "f32[3, 2]"]]
    assert len(listed(capsys, str(model))) > len(rows)


def test_all_that_are_listed_are_written_into_one_file(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.npz"
    only = ["--only", "kind=module", "--only", "module=1"]
    assert main(["values", str(model), *only, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    trace = tg.load(model)
    (event,) = trace.events(kind="module", module="1")
    assert (told["written"], told["ids"]) == (str(out), [event.inputs[0].id, event.outputs[0].id])
    with np.load(out, allow_pickle=False) as written:
        assert set(written) == {"input", "out"}
        assert np.array_equal(written["out"], trace.tensor(event.outputs[0]).numpy())


def test_tensors_of_one_name_are_distinguished_in_one_file(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.npz"
    assert main(["values", str(bundle), "--name", "q", "--out", str(out)]) == 0
    with np.load(out) as written:
        assert sorted(name.partition("#")[0] for name in written) == ["q", "q"]


def test_a_dtype_that_numpy_lacks_is_named(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fails(capsys, str(bundle), "--out", str(tmp_path / "x.npz"))
    assert "numpy has no dtype for torch.bfloat16, which half has" in said
    assert not (tmp_path / "x.npz").exists()


def test_one_is_written(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = torch.arange(6.0).reshape(2, 3).t() + 1
    for suffix in ("npy", "pt", "safetensors"):
        assert main(["values", str(bundle), "--name", "q", "--out", str(tmp_path / f"q.{suffix}")]) == 0
    assert capsys.readouterr().out == ""
    assert np.array_equal(np.load(tmp_path / "q.npy"), expected.numpy())
    assert torch.equal(torch.load(tmp_path / "q.pt", weights_only=True), expected)
    assert torch.equal(load_file(tmp_path / "q.safetensors")["tensor"], expected)


def test_one_is_chosen_by_its_number(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = listed(capsys, str(bundle))[0][0]
    assert main(["values", str(bundle), "--id", first, "--out", str(tmp_path / "q.npy")]) == 0
    assert np.load(tmp_path / "q.npy").tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("name", "suffix"), [("half", "pt"), ("half", "safetensors"), ("array", "npy"), ("array", "pt"), ("complex", "npy")]
)
def test_other_kinds(bundle: Path, tmp_path: Path, name: str, suffix: str) -> None:
    out = tmp_path / f"x.{suffix}"
    assert main(["values", str(bundle), "--name", name, "--out", str(out)]) == 0
    read = {"npy": np.load, "pt": torch.load, "safetensors": lambda path: load_file(path)["tensor"]}[suffix](out)
    assert read.tolist() == {"half": [1, 1], "array": [0, 1, 2], "complex": [1, 1]}[name]


def test_what_cannot_be_written(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "x.npy")]
    assert "numpy has no dtype for torch.bfloat16" in fails(capsys, str(bundle), "--name", "half", *out)
    assert "did you mean 'array'?" in fails(capsys, str(bundle), "--name", "arry", *out)
    assert "--name or --id" in fails(capsys, str(bundle), *out)
    assert "no tensor 99" in fails(capsys, str(bundle), "--id", "99", *out)
    assert ".npy, .pt, .safetensors" in fails(capsys, str(bundle), "--name", "q", "--out", "x.csv")
    assert "does not exist" in fails(capsys, str(tmp_path / "none"))
    nowhere = str(tmp_path / "nowhere" / "q")
    for suffix in ("npy", "pt", "safetensors"):
        said = fails(capsys, str(bundle), "--name", "q", "--out", f"{nowhere}.{suffix}")
        assert nowhere in said
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What torch has no dtype for, and a name that would write to the terminal."""
    path = tmp_path_factory.mktemp("odd") / "run.trace"
    with tg.record(to=path):
        tg.mark("days", np.array(["2020-01-01"], "datetime64[D]"))
        tg.mark("words", np.array(["ab", "c"]))
        tg.mark("swapped", np.arange(3, dtype=">i4"))
        tg.mark("wide", torch.ones(2, dtype=torch.complex128))
        tg.mark("\x1b[31m\nred", torch.ones(1))
    return path


@pytest.mark.parametrize("name", ["days", "words", "swapped"])
def test_arrays_that_torch_has_no_dtype_for(
    odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for suffix in ("pt", "safetensors"):
        said = fails(capsys, str(odd), "--name", name, "--out", str(tmp_path / f"x.{suffix}"))
        assert "torch has no dtype" in said
        assert ".npy" in said
    assert main(["values", str(odd), "--name", name, "--out", str(tmp_path / "x.npy")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
    assert len(np.load(tmp_path / "x.npy")) == {"days": 1, "words": 2, "swapped": 3}[name]


def test_a_tensor_that_safetensors_has_no_dtype_for(
    odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = fails(capsys, str(odd), "--name", "wide", "--out", str(tmp_path / "x.safetensors"))
    assert "safetensors has no dtype for torch.complex128: write it as .npy or .pt" in said


def test_names_in_errors_are_cleaned(odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "x.npy")]
    for arguments in (["--name", "nosuch"], []):
        said = fails(capsys, str(odd), *arguments, *out)
        assert "\\x1b[31m\\nred" in said
        assert said.strip().isprintable()


def test_words_of_dtypes_are_cleaned(
    odd: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tg.load(odd)
    metas = trace._tables.metas
    for number, meta in enumerate(metas):
        metas[number] = replace(meta, word="\x1b[2J\n[1]")
    monkeypatch.setattr("torchglass.recording.load_trace", lambda *given: trace)
    rows = listed(capsys, str(odd))
    assert len(rows) == 5
    assert all("\\x1b[2J\\n[1]" in row for row in rows)
    assert all(text.isprintable() for row in rows for text in row)


def test_a_number_and_another_name(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = listed(capsys, str(bundle), "--name", "half")[0][0]
    out = ["--out", str(tmp_path / "x.pt")]
    said = fails(capsys, str(bundle), "--id", number, "--name", "q", *out)
    assert f"tensor {number} was kept as 'half', not as 'q'" in said
    assert main(["values", str(bundle), "--id", number, "--name", "half", *out]) == 0


def test_nothing_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tg.record(to=tmp_path / "run.trace"):
        torch.ones(2)
    assert main(["values", str(tmp_path / "run.trace")]) == 0
    assert capsys.readouterr().out == "0 tensors kept; torchglass.mark(name, tensor) keeps one\n"
    said = fails(capsys, str(tmp_path / "run.trace"), "--name", "q")
    assert said.endswith("no tensor 'q' was kept; there are none: torchglass.mark(name, tensor) keeps one\n")


def test_a_name_or_number_that_is_not_there_is_an_error(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no tensor 'arry' was kept; did you mean 'array'?" in fails(capsys, str(bundle), "--name", "arry")
    assert "no tensor 99 was kept" in fails(capsys, str(bundle), "--id", "99")


def test_without_torch(bundle: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from torchglass.cli import main\n"
        "sys.exit(main(['values', sys.argv[1]]) or main(['values', sys.argv[1], '--name', 'q', '--out', sys.argv[2]]))"
    )
    command = [sys.executable, "-c", code, str(bundle), str(tmp_path / "q.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert np.load(tmp_path / "q.npy").shape == (3, 2)


SUFFIXES = ("npy", "pt", "safetensors")


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_the_advice_does_not_go_in_circles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each format that is named takes the tensor."""
    with tg.record(to=tmp_path / "run.trace"):
        tg.mark("half", torch.ones(2, dtype=torch.complex32))
    for suffix in ("npy", "safetensors"):
        said = fails(capsys, str(tmp_path / "run.trace"), "--name", "half", "--out", str(tmp_path / f"x.{suffix}"))
        assert said.endswith("has no dtype for torch.complex32: write it as .pt\n")
    assert main(["values", str(tmp_path / "run.trace"), "--name", "half", "--out", str(tmp_path / "x.pt")]) == 0
    assert capsys.readouterr() == ("", "")
    assert torch.load(tmp_path / "x.pt").dtype == torch.complex32


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_path_that_cannot_be_a_file(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    (tmp_path / f"folder.{suffix}").mkdir()
    for name, reason in {"folder": "Is a directory", "x" * 300: "File name too long"}.items():
        said = fails(capsys, str(bundle), "--name", "q", "--out", str(tmp_path / f"{name}.{suffix}"))
        assert said.endswith(f"cannot be written: {reason}; choose another path\n")
    assert [path.name for path in tmp_path.iterdir()] == [f"folder.{suffix}"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, suffix: str) -> None:
    """A limit on the size of files stands for the disk."""
    with tg.record(to=tmp_path / "run.trace"):
        tg.mark("x", torch.ones(100_000))
    out = tmp_path / "out"
    out.mkdir()
    (out / f"x.{suffix}").write_text("before")
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from torchglass.cli import main; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "sys.exit(main(['values', *sys.argv[1:]]))"
    )
    arguments = [str(tmp_path / "run.trace"), "--name", "x", "--out", str(out / f"x.{suffix}")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.endswith("cannot be written: File too large; choose another path\n")
    assert done.stderr.count("\n") == 1
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [(f"x.{suffix}", "before")]


def test_safetensors_without_torch(bundle: Path, odd: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from torchglass.cli import main\n"
        "sys.exit(main(['values', sys.argv[1], '--name', sys.argv[2], '--out', sys.argv[3]]))"
    )

    def run(path: Path, name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, str(path), name, str(tmp_path / f"{name}.safetensors")]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    done = run(bundle, "q")
    assert (done.returncode, done.stderr) == (0, "")
    assert torch.equal(load_file(tmp_path / "q.safetensors")["tensor"], torch.arange(6.0).reshape(2, 3).t() + 1)
    done = run(odd, "days")
    assert done.stderr == "torchglass: safetensors has no dtype for datetime64[D]: write it as .npy\n"


def test_a_pattern_without_a_key_has_that_of_the_one_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.py").write_text(
        "import torch\n"
        "layers = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(5)))\n"
        "layers(torch.ones(1, 2))\n",
        encoding="utf-8",
    )
    command = [
        sys.executable,
        "-m",
        "torchglass",
        "run",
        "--values",
        "module=1,3,kind=module",
        "--to",
        "a.trace",
        "run.py",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    rows = listed(capsys, str(tmp_path / "a.trace"))
    assert [row[1:3] for row in rows] == [["out", each] for each in "0123"]  # 1 takes what 0 gave, and 3 what 2 gave
