"""Which tensor is which: identity, version and metadata of every tensor that an event took or gave.

The only place that reads tensors. A tensor is known by ``id`` plus a weak reference (ids are reused at once);
its metadata is interned, so that a value costs four ints.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

from torchglass.capture.log import LOGS
from torchglass.capture.torch_names import Parameter, Tensor, no_functions, no_subclasses, storage_address

ValueOf = Callable[[Tensor], int]
Meta = tuple[Any, ...]
"""(shape, stride, dtype, device, requires_grad, class) and, unless it is strided, the layout.

Entries are None where torch would not say."""

NONE = -1
WIDTH = 5
LONGEST_DTYPE = 40
DEEPEST_BASE = 32
CHANGED = -2
"""The version of tensors that must be looked at again."""
PENDING = -3
"""The version of tensors that an op made or changed: autograd has yet to count the change and to mark the gradient."""
ARRAY = "array"
"""In the place of the layout: it is a numpy array."""
UNVERSIONED = -1
"""The version of tensors for which torch keeps none (inference tensors)."""


class ValueTable:
    """All values of one session, and the living tensors among them."""

    def __init__(self) -> None:
        self.living: dict[int, tuple[Any, ...]] = {}
        self.metas: dict[Meta, int] = {}
        self.rows: list[int] = []
        """WIDTH entries a value: id, meta, version, address of the storage (0: none), the tensor's value before.

        Instead of that last one: -2 - the value of an array in whose memory it lies."""
        self.roots: dict[int, Any] = {}
        """By ``id`` of an array that no event has met: a reference to a known view of it."""
        self.from_ops = False
        """Whether ops may have made some of them."""
        self.ids = itertools.count()
        self.meta_ids = itertools.count()
        self.reluctant: Callable[[Tensor, type], int]
        """Gives the value id of tensors that may refuse to be read."""
        self.plain_value_of: ValueOf
        """The same as ``value_of``, for those who know that the class is Tensor or Parameter."""
        self.value_of: ValueOf = _make_value_of(self)
        self.made, self.renew = _make_for_ops(self)

    def forget(self, *tensors: Tensor) -> None:
        """Drop what is known of these tensors, weak references included."""
        for tensor in tensors:
            self.living.pop(id(tensor), None)

    def forget_all(self, found: Any) -> None:
        """Look again at a tensor, or at each of a list, that a function may have changed."""
        for tensor in found if isinstance(found, (list, tuple)) else (found,):
            known = self.living.get(id(tensor))
            if known is not None:
                self.living[id(tensor)] = (known[0], known[1], CHANGED)

    def lies_in(self, found: Any, owner: Any) -> None:
        """Say that a tensor or array has the memory of another: it is described again, as if made from that one."""
        other, number = self.value_of(owner), self.value_of(found)  # the owner's is the smaller one, if both are new
        meta, version, address = _read_unseen(found, type(found))
        meta_id = self.metas.get(meta)
        if meta_id is None:
            meta_id = self.metas.setdefault(meta, next(self.meta_ids))
        self.rows.extend((number, meta_id, version, address, -2 - other))

    def clear(self) -> None:
        """Forget all living tensors (their rows stay); what the last ops made is complete now."""
        if self.from_ops:
            with no_functions():
                for known in list(self.living.values()):
                    tensor = known[0]() if known[2] == PENDING else None
                    if tensor is not None:
                        _settle_op(self, tensor, known)
        self.living.clear()


def _make_value_of(table: ValueTable) -> ValueOf:
    """The hot function of the recorder: the value id of a tensor as it is now.

    A closure: it looks nothing up on ``self``. A known tensor is the same value while its version is: what changes
    a tensor without counting (``t.data = …``, ``requires_grad_``) is a function that we see, and makes us forget it.
    """
    living, metas, rows = table.living, table.metas, table.rows
    next_id, next_meta = table.ids.__next__, table.meta_ids.__next__
    ref = weakref.ref

    def value_of(tensor: Tensor) -> int:
        cls = type(tensor)
        return plain_value_of(tensor) if cls is Tensor or cls is Parameter else reluctant(tensor, cls)

    def plain_value_of(tensor: Tensor) -> int:
        place, before = id(tensor), NONE
        try:
            version = tensor._version
            known = living.get(place)
            if known is not None and known[0]() is tensor:
                before = known[1]
                if known[2] == version:
                    return before
                if known[2] == PENDING:
                    return _settle_op(table, tensor, known)
            # The stride comes first: tensors without one (sparse) go the careful way, so layout is strided here.
            stride = tensor.stride()
            meta = (tensor.shape, stride, tensor.dtype, tensor.device, tensor.requires_grad, type(tensor))
            meta_id, address = metas.get(meta), storage_address(tensor)  # symbolic sizes cannot be hashed
        except Exception:
            return reluctant(tensor, type(tensor))
        if meta_id is None:
            meta_id = metas.setdefault(meta, next_meta())
        number = next_id()
        living[place] = (ref(tensor), number, version)
        rows.extend((number, meta_id, version, address, before))
        return number

    def reluctant(tensor: Tensor, cls: type) -> int:
        meta, version, address = _read_unseen(tensor, cls)
        meta_id = metas.get(meta)
        if meta_id is None:
            meta_id = metas.setdefault(meta, next_meta())
        before, known = NONE, living.get(id(tensor))
        if known is not None and known[0]() is tensor:
            before = known[1]
            if known[2] == (version, meta_id):
                return before
        number = next_id()
        living[id(tensor)] = (ref(tensor), number, (version, meta_id))
        rows.extend((number, meta_id, version, address, before))
        return number

    table.reluctant, table.plain_value_of = reluctant, plain_value_of
    return value_of


Renew = Callable[[tuple[Any, ...], dict[str, Any] | None, tuple[int, ...], tuple[str, ...]], Any]
"""(args, kwargs, positions, names) → the first argument that an op wrote into; each of them is a new value."""


def _make_for_ops(table: ValueTable) -> tuple[ValueOf, Renew]:
    """Values as an op leaves them, before autograd has done its part; whoever looks next completes them."""
    living, metas, rows = table.living, table.metas, table.rows
    next_id, next_meta = table.ids.__next__, table.meta_ids.__next__

    def begin(tensor: Tensor, cls: type, before: int) -> int:
        meta = (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, cls)
        version, address = tensor._version, storage_address(tensor)
        meta_id = metas.get(meta)
        if meta_id is None:
            meta_id = metas.setdefault(meta, next_meta())
        number = next_id()
        living[id(tensor)] = (weakref.ref(tensor), number, PENDING, meta, before)
        rows.extend((number, meta_id, version, address, before))
        return number

    def made(tensor: Tensor) -> int:
        """The value of a tensor that an op gave."""
        cls = type(tensor)
        known = living.get(id(tensor))
        if (cls is Tensor or cls is Parameter) and (known is None or known[0]() is not tensor):
            try:
                return begin(tensor, cls, NONE)
            except Exception:
                return table.reluctant(tensor, cls)
        if known is not None and known[2] == PENDING and known[0]() is tensor:
            return known[1]
        return table.value_of(tensor)

    def renew(args: Any, kwargs: Any, positions: tuple[int, ...], names: tuple[str, ...]) -> Any:
        """The arguments that an op wrote into are new values."""
        written = [args[position] for position in positions if position < len(args)]
        written += [kwargs[name] for name in names if name in kwargs] if kwargs else []
        for each in written:
            for tensor in each if isinstance(each, (list, tuple)) else (each,):
                renew_one(tensor)
        return written[0] if written else None

    def renew_one(tensor: Any) -> None:
        cls = type(tensor)
        known = living.get(id(tensor))
        before = known[1] if known is not None and known[0]() is tensor else NONE
        try:
            if cls is Tensor or cls is Parameter:
                begin(tensor, cls, before)
                return
        except Exception:  # no version, no strides: looked at again with care
            pass
        table.forget_all(tensor)

    return made, renew


def _settle_op(table: ValueTable, tensor: Tensor, known: tuple[Any, ...]) -> int:
    """Complete the value of a tensor that an op made: its version and gradient are what they will be."""
    reference, number, _, meta, before = known
    version, grad = tensor._version, tensor.requires_grad
    if version or grad != meta[4]:
        meta = (*meta[:4], grad, meta[5])
        meta_id = table.metas.get(meta)
        if meta_id is None:
            meta_id = table.metas.setdefault(meta, next(table.meta_ids))
        table.rows.extend((number, meta_id, version, storage_address(tensor), before))
    table.living[id(tensor)] = (reference, number, version)
    return number


def _read_unseen(tensor: Tensor, cls: type) -> tuple[Meta, int, int]:
    """Reading a subclass may dispatch ops of its own: these must not be recorded."""
    if not issubclass(cls, Tensor):
        return _read_array(tensor, cls)
    log = LOGS.get(get_ident())
    if log is None:
        return _read_carefully(tensor, cls)
    was_on, log.on = log.on, False
    try:
        return _read_carefully(tensor, cls)
    finally:
        log.on = was_on


def _read_carefully(tensor: Tensor, cls: type) -> tuple[Meta, int, int]:
    """Metadata of tensors that may refuse: subclasses, sparse, nested, lazy, inference, functorch's."""
    with no_subclasses():
        meta = (
            _ask(lambda: tuple(map(_plain_size, tensor.shape))),
            _ask(lambda: tuple(map(_plain_size, tensor.stride()))),
            _ask(lambda: tensor.dtype),
            _ask(lambda: tensor.device),
            _ask(lambda: bool(tensor.requires_grad)),
            cls,
            _ask(lambda: tensor.layout),
        )
        version = _ask(lambda: tensor._version)
        address = _ask(lambda: storage_address(tensor))
    return meta, UNVERSIONED if version is None else version, address or 0


def _read_array(array: Any, cls: type) -> tuple[Meta, int, int]:
    """The same of a numpy array, by numpy's own attributes: a subclass may have others."""
    plain = sys.modules["numpy"].ndarray
    shape, strides, dtype = (vars(plain)[name].__get__(array) for name in ("shape", "strides", "dtype"))
    item = max(dtype.itemsize, 1)
    meta = (shape, tuple([step // item for step in strides]), str(dtype)[:LONGEST_DTYPE], "cpu", False, cls, ARRAY)
    return meta, UNVERSIONED, _memory_of(array, plain)


def _memory_of(array: Any, plain: type) -> int:
    """An address that arrays over the same memory share, and the tensor whose memory it is."""
    base = array
    for _ in range(DEEPEST_BASE):
        below = vars(plain)["base"].__get__(base)
        if below is None:
            break
        if issubclass(type(below), Tensor):
            return storage_address(below)
        if not issubclass(type(below), plain):
            break
        base = below
    return vars(plain)["ctypes"].__get__(base).data


def _plain_size(size: Any) -> int:
    """A size as an int; symbolic and ragged sizes become -1, asking them would add guards to the program."""
    return size if type(size) is int else -1


def _ask(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:
        return None
