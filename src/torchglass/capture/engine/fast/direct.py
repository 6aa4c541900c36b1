"""Where plain tensors keep what C reads of them, and torch its state: looked for and tried, once in a process.

Torch's getters take 250 to 900 instructions each, and an event asks for a dozen. The words that they read stand in the
tensor at fixed places; these are looked for in tensors whose sizes, storage and versions are known. The three functions
are torch's own, called by their address. Where anything is not as expected the getters are used, as ever.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchglass.capture.torch.names import HAS_TORCH
from torchglass.compiled import extension

if TYPE_CHECKING or HAS_TORCH:
    import torch

    from torchglass.capture.torch import private

SYMBOLS = (
    ("torch_cpu", "_ZN2at15sequence_number4peekEv"),
    ("torch_cpu", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"),
    ("c10", "_ZNK3c1010TensorImpl13requires_gradEv"),
)
"""``at::sequence_number::peek()``, ``PythonTorchFunctionTLS::stack_len()``, ``TensorImpl::requires_grad() const``."""
WORD = 8
FIRST_WORDS = 16
"""Words of a tensor in which the number of its dimensions must stand; what is behind them is there then."""


class NotFound(Exception):
    """Something is not where it is looked for."""


def read_directly() -> bool:
    """Have C read tensors where they are, if that gives what the getters give."""
    extension.read_directly(None)
    try:
        if sys.maxsize <= 1 << 32 or sys.byteorder != "little":
            raise NotFound
        with private.no_functions(), private.no_modes(), torch.inference_mode(False), torch.no_grad():
            extension.read_directly((*_offsets(), *_addresses()))
            if _holds():
                return True
    except Exception:  # a torch of another kind: not a fault, the getters are there
        pass
    extension.read_directly(None)
    return False


# ---------------------------------------------------------------- functions


def _addresses() -> list[int]:
    """Of torch's own functions, in the libraries that are loaded: no other copy of them may be."""
    folder = Path(torch.__file__).parent / "lib"
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    found: list[int] = []
    for name, symbol in SYMBOLS:
        library = ctypes.CDLL(str(folder / f"lib{name}{suffix}"), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        found.append(ctypes.cast(library[symbol], ctypes.c_void_p).value or 0)
    if 0 in found:
        raise NotFound
    return found


# ---------------------------------------------------------------- offsets


def _words(tensor: Any, count: int = FIRST_WORDS, behind: int = 0) -> list[int]:
    """What stands in a tensor, as C++ has it."""
    return list((ctypes.c_int64 * count).from_address(tensor._cdata + behind * WORD))


def _only(found: list[int]) -> int:
    if len(found) != 1:
        raise NotFound
    return found[0]


def _offsets() -> tuple[int, ...]:
    """Of the tensor in its Python object; of storage, autograd's part, counter and sizes there; of the count."""
    memory, other = torch.empty(1000, device="cpu"), torch.empty(2, device="cpu")
    sample, learned = memory.as_strided((3, 5, 7), (11, 13, 17), 19), torch.empty(2, device="cpu").requires_grad_()
    with torch.inference_mode():
        unversioned = torch.empty(2, device="cpu")
    tensor = _only([at for at in range(2 * WORD, _size_of(sample), WORD) if _in_object(sample, at) == sample._cdata])
    words, base, without, with_grad, no_version = map(_words, (sample, memory, other, learned, unversioned))
    sizes = _only([at for at in range(len(words) - 3) if words[at : at + 4] == [3, 3, 5, 7]])
    strides, rest = _words(sample, 3, sizes + 6), _words(sample, 2, sizes + 11)
    if strides != [11, 13, 17] or rest != [19, 105]:
        raise NotFound
    storage = _only([at for at in range(sizes) if words[at] == private.storage_address(sample)])
    between = range(storage + 1, sizes)
    counter = _only([at for at in between if words[at] == base[at] != without[at] and words[at] and not no_version[at]])
    autograd = _only([at for at in between if at != counter and with_grad[at] and not without[at]])
    return tensor, storage * WORD, autograd * WORD, counter * WORD, sizes * WORD, _to_count(memory, base[counter])


def _size_of(tensor: Any) -> int:
    return type(tensor).__basicsize__


def _in_object(tensor: Any, at: int) -> int:
    return ctypes.c_int64.from_address(id(tensor) + at).value


def _to_count(tensor: Any, counter: int) -> int:
    """Where the version stands in its counter: behind what all counted objects of C++ begin with."""
    for at in (2 * WORD, 3 * WORD):
        found = ctypes.c_uint32.from_address(counter + at)
        seen = [(found.value, tensor._version)]
        for _ in range(3):
            tensor.zero_()
            seen.append((found.value, tensor._version))
        if all(read == said for read, said in seen):
            return at
    raise NotFound


# ---------------------------------------------------------------- the trial


def _holds() -> bool:
    """Whether C reads what the getters say, of tensors of many kinds, and of torch's state."""
    matrix = torch.empty((4, 6), device="cpu")
    samples = [torch.empty((2,) * count, device="cpu") for count in range(6)]
    samples += [matrix.t(), matrix[1:, ::2], matrix.to(torch.int64), matrix.bool(), torch.empty((4, 6), device="meta")]
    samples += [torch.nn.Parameter(matrix), torch.empty(3, device="cpu").requires_grad_(), matrix.zero_()]
    kinds = {(type(each), each.dtype, each.device): _read(each)[1][1:3] for each in samples if each.is_contiguous()}
    dtypes = [kinds[torch.Tensor, dtype, torch.device("cpu")] for dtype in (torch.float32, torch.int64, torch.bool)]
    return all(map(_is_read, samples)) and len(set(dtypes)) == len(dtypes) and _is_state_read()


def _read(tensor: Any) -> Any:
    found = extension.read_tensor(tensor)
    if found is None:
        raise NotFound
    return found


def _is_read(tensor: Any) -> bool:
    version, (_, _, _, grad, count, *sizes), address = _read(tensor)
    said = (tensor._version, tensor.requires_grad, tensor.dim(), [*tensor.shape, *tensor.stride()])
    return (version, bool(grad), count, sizes) == said and address == private.storage_address(tensor)


def _is_state_read() -> bool:
    before = (private.next_node(), private.count_function_modes())
    mode = torch.overrides.BaseTorchFunctionMode()
    private.push_function_mode(mode)
    try:
        during = extension.read_state()
    finally:
        private.pop_function_mode()
    return (*extension.read_state(), *during) == (*before, before[0], before[1] + 1)
