"""A torch without one of the private names: its feature is lost, and said so; the program and the import are not."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from torchglass.capture.torch import private

PROGRAM = textwrap.dedent(
    """
    import os, sys, warnings
    import torch, torch.utils._python_dispatch, torch.jit._trace, torch.utils.dlpack
    import torch._library.custom_ops, torch._functorch.pyfunctorch
    import torch._dynamo  # an optimizer's first step imports it: once here and not in each child
    from torch import nn

    NAMES = sys.argv[1:]

    def program():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        x = torch.rand(3, 4)
        loss = model(x).pow(2).mean() + torch.prod(x)
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        return [loss.detach(), *(each.detach().clone() for each in model.parameters())]

    def load_private(name):
        # The file with the private names, as it would be with a torch that lacks this one.
        import importlib.util
        *path, last = name.split(".")
        owner = torch
        for each in path:
            owner = getattr(owner, each)
        def lacking(found, part, *default):
            return default[0] if found is owner and part == last else getattr(found, part, *default)
        spec = importlib.util.find_spec("torchglass.capture.torch.private")
        module = importlib.util.module_from_spec(spec)
        module.getattr = lacking
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        import torchglass.capture.torch
        torchglass.capture.torch.private = module
        return module

    def child(name):
        expected = program()
        private = load_private(name)
        assert list(private.MISSING) == [name], private.MISSING
        import torchglass as tg
        for ops in (False, True):
            with tg.record(ops=ops, variables=["loss"]) as trace:
                tg.mark("x", expected[0])
                found = program()
            assert all(map(torch.equal, expected, found)), "other bits"
            assert any(name in note for note in trace.notes), trace.notes
            assert not any("failed to record" in note for note in trace.notes), trace.notes
            assert len(trace) > 5, len(trace)
            tg.render(trace)
        assert not torch._C._len_torch_function_stack() and not torch._C._len_torch_dispatch_stack()

    for name in NAMES:
        pid = os.fork()
        if pid == 0:
            try:
                child(name)
            except BaseException as error:
                import traceback
                traceback.print_exc()
                print(f"without torch.{name}: {type(error).__name__}: {error}", flush=True)
                os._exit(1)
            os._exit(0)
        os.waitpid(pid, 0)
    """
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_each_name_may_be_missing() -> None:
    names = list(private.NAMES)
    assert len(names) > 40
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout == "", done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


def test_nothing_is_missing_in_the_torch_that_the_tests_run_with() -> None:
    assert private.MISSING == {}
    assert private.missing_notes() == []


def test_private_names_stand_nowhere_else() -> None:
    """``torch._C`` and its like, in code, only in private.py."""
    import ast
    from pathlib import Path

    import torchglass

    root = Path(torchglass.__file__).parent
    found: list[str] = []
    for path in root.rglob("*.py"):
        if path == Path(private.__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
            if named and isinstance(node.value, ast.Name) and node.value.id == "torch":
                found.append(f"{path.name}:{node.lineno} torch.{node.attr}")
            module = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) else None
            if module and module.startswith("torch.") and "._" in module:
                found.append(f"{path.name}:{node.lineno} from {module}")
    assert found == []
