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

from torchglass.capture.engine.log import LOGS
from torchglass.capture.torch.names import Parameter, Tensor, no_functions, no_subclasses, storage_address
from torchglass.capture.transparency.ours import foreign
from torchglass.journal.layout import META, NONE, NUMBER_BITS, NUMBER_MASK, VALUE, pack_value
from torchglass.journal.rows import MetaRow, encoded
from torchglass.journal.writer import Journal

ValueOf = Callable[[Tensor], int]
Meta = tuple[Any, ...]
"""(shape, stride, dtype, device, requires_grad, class) and, unless it is strided, the layout.

Entries are None where torch would not say."""

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
    """All values of one session, and the living tensors among them.

    A value is told as one int: its number, and above that the row of its metadata (journal/layout.py).
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.living: dict[int, tuple[Any, ...]] = {}
        """By ``id``: a weak reference, the value, and the version at which it was that value."""
        self.metas: dict[Meta, int] = {}
        self.meta_numbers = itertools.count()
        self.roots: dict[int, Any] = {}
        """By ``id`` of an array that no event has met: a reference to a known view of it."""
        self.from_ops = False
        """Whether ops may have made some of them."""
        self.ids = itertools.count()
        self.reluctant: Callable[[Tensor, type], int]
        """Gives the value of tensors that may refuse to be read."""
        self.plain_value_of: ValueOf
        """The same as ``value_of``, for those who know that the class is Tensor or Parameter."""
        self.value_of: ValueOf
        self.made: ValueOf
        self.renew: Renew
        self._bind()

    def _bind(self) -> None:
        self.value_of = _make_value_of(self, self._journal)
        self.made, self.renew = _make_for_ops(self, self._journal)

    def meta_id(self, meta: Meta) -> int:
        """The row of some metadata, written if it is new."""
        number = self.metas.get(meta)
        if number is None:
            number = next(self.meta_numbers)
            self._journal.rows.add(META, number, meta_bytes(meta))
            self.metas[meta] = number
        return number

    def __len__(self) -> int:
        """How many are remembered; some may be gone by now."""
        return len(self.living)

    def is_known(self, found: Any) -> bool:
        """Whether this very object is a value already."""
        known = self.living.get(id(found))
        return known is not None and known[0]() is found

    def last_number(self, tensor: Any) -> int:
        """The number of the value that a tensor was when it was last met; NONE where it was not."""
        known = self.living.get(id(tensor))
        return NONE if known is None else known[1] & NUMBER_MASK

    def living_objects(self) -> list[Any]:
        """The tensors and arrays among the values that live."""
        return [found for known in list(self.living.values()) if (found := known[0]()) is not None]

    def forget(self, *tensors: Tensor) -> None:
        """Drop what is known of these tensors, weak references included."""
        for tensor in tensors:
            self.living.pop(id(tensor), None)

    def forget_all(self, found: Any) -> None:
        """Look again at a tensor, or at each of a list, that a function may have changed."""
        for tensor in found if isinstance(found, (list, tuple)) else (found,):
            self.touch(tensor)

    def touch(self, tensor: Any) -> None:
        """Look again at a tensor when it is met next."""
        known = self.living.get(id(tensor))
        if known is not None:
            self.living[id(tensor)] = (known[0], known[1], CHANGED)

    def lies_in(self, found: Any, owner: Any) -> None:
        """Say that a tensor or array has the memory of another: it is described again, as if made from that one."""
        other, value = self.value_of(owner), self.value_of(found)  # the owner's is the smaller one, if both are new
        meta, version, address = read_unseen(found, type(found))
        self.describe(value & NUMBER_MASK, meta, version, address, -2 - (other & NUMBER_MASK))

    def describe(self, number: int, meta: Meta, version: int, address: int, before: int) -> int:
        """Write down what a value is, anew where it was before; returns the value."""
        meta_id = self.meta_id(meta)
        self._journal.values.write(number, version, address, before, meta_id)
        return number | meta_id << NUMBER_BITS

    def let_go(self) -> None:
        """The recording has ended: the functions that know this table go."""
        for name in ("value_of", "plain_value_of", "reluctant", "made", "renew", "touch"):
            self.__dict__.pop(name, None)

    def clear(self) -> None:
        """Forget all living tensors (their rows stay); what the last ops made is complete now."""
        if self.from_ops:
            with no_functions():
                for known in list(self.living.values()):
                    tensor = known[0]() if known[2] == PENDING else None
                    if tensor is not None:
                        _settle_op(self, tensor, known)
        self.living.clear()


_metas_known: dict[Meta, bytes] = {}
"""Kept for the process, as the same few come in every recording."""
MOST_KEPT = 4096


def meta_bytes(meta: Meta) -> bytes:
    """The row of some metadata."""
    known = _metas_known.get(meta)
    if known is None:
        shape, stride, dtype, device, grad, cls, *layout = meta
        is_array = layout == [ARRAY]
        row = MetaRow(
            kind="array" if is_array else "tensor",
            shape=None if shape is None else list(map(int, shape)),
            dtype=_word(dtype),
            device="?" if device is None else str(device),
            stride=None if stride is None else list(map(int, stride)),
            layout=_word(layout[0]) if layout and not is_array else "strided",
            requires_grad=bool(grad),
            type=cls.__name__,
        )
        known = encoded(row)
        if len(_metas_known) < MOST_KEPT and (cls is Tensor or cls is Parameter):  # no class of the program's is kept
            _metas_known[meta] = known
    return known


def _word(name: Any) -> str:
    return "?" if name is None else str(name).removeprefix("torch.")


def _make_value_of(table: ValueTable, journal: Journal) -> ValueOf:
    """The hot function of the recorder: the value of a tensor as it is now.

    A closure: it looks nothing up on ``self``. A known tensor is the same value while its version is: what changes
    a tensor without counting (``t.data = …``, ``requires_grad_``) is a function that we see, and makes us forget it.
    """
    living, metas, meta_id_of, values = table.living, table.metas, table.meta_id, journal.values
    next_id, ref = table.ids.__next__, weakref.ref

    def value_of(tensor: Tensor) -> int:
        cls = type(tensor)
        return plain_value_of(tensor) if cls is Tensor or cls is Parameter else reluctant(tensor, cls)

    def plain_value_of(tensor: Tensor) -> int:
        place, before = id(tensor), NONE
        try:
            version = tensor._version
            known = living.get(place)
            if known is not None and known[0]() is tensor:
                if known[2] == version:
                    return known[1]
                if known[2] == PENDING:
                    return _settle_op(table, tensor, known)
                before = known[1] & NUMBER_MASK
            # The stride comes first: tensors without one (sparse) go the careful way, so layout is strided here.
            stride = tensor.stride()
            meta = (tensor.shape, stride, tensor.dtype, tensor.device, tensor.requires_grad, type(tensor))
            meta_id, address = metas.get(meta), storage_address(tensor)  # symbolic sizes cannot be hashed
        except Exception as refusal:
            foreign(refusal)
            return reluctant(tensor, type(tensor))
        if meta_id is None:
            meta_id = meta_id_of(meta)
        number = next_id()
        value = number | meta_id << NUMBER_BITS
        living[place] = (ref(tensor), value, version)
        if values.first <= number < values.end:
            pack_value(values.buffer, number * VALUE + values.shift, version, address, before, meta_id + 1)
        else:
            values.write(number, version, address, before, meta_id)
        return value

    def reluctant(tensor: Tensor, cls: type) -> int:
        meta, version, address = read_unseen(tensor, cls)
        meta_id = meta_id_of(meta)
        before, known = NONE, living.get(id(tensor))
        if known is not None and known[0]() is tensor:
            before = known[1] & NUMBER_MASK
            if known[2] == (version, meta_id):
                return known[1]
        number = next_id()
        value = number | meta_id << NUMBER_BITS
        living[id(tensor)] = (ref(tensor), value, (version, meta_id))
        values.write(number, version, address, before, meta_id)
        return value

    table.reluctant, table.plain_value_of = reluctant, plain_value_of
    return value_of


Renew = Callable[[tuple[Any, ...], dict[str, Any] | None, tuple[int, ...], tuple[str, ...]], Any]
"""(args, kwargs, positions, names) → the first argument that an op wrote into; each of them is a new value."""


def _make_for_ops(table: ValueTable, journal: Journal) -> tuple[ValueOf, Renew]:
    """Values as an op leaves them, before autograd has done its part; whoever looks next completes them."""
    living, metas, meta_id_of, values = table.living, table.metas, table.meta_id, journal.values
    next_id = table.ids.__next__

    def begin(tensor: Tensor, cls: type, before: int) -> int:
        meta = (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, cls)
        version, address = tensor._version, storage_address(tensor)
        meta_id = metas.get(meta)
        if meta_id is None:
            meta_id = meta_id_of(meta)
        number = next_id()
        value = number | meta_id << NUMBER_BITS
        living[id(tensor)] = (weakref.ref(tensor), value, PENDING, meta, before)
        if values.first <= number < values.end:
            pack_value(values.buffer, number * VALUE + values.shift, version, address, before, meta_id + 1)
        else:
            values.write(number, version, address, before, meta_id)
        return value

    def made(tensor: Tensor) -> int:
        """The value of a tensor that an op gave."""
        cls = type(tensor)
        known = living.get(id(tensor))
        if (cls is Tensor or cls is Parameter) and (known is None or known[0]() is not tensor):
            try:
                return begin(tensor, cls, NONE)
            except Exception as refusal:
                foreign(refusal)
                return table.reluctant(tensor, cls)
        if known is not None and known[2] == PENDING and known[0]() is tensor:
            return known[1]
        return table.value_of(tensor)

    def renew(args: Any, kwargs: Any, positions: tuple[int, ...], names: tuple[str, ...]) -> Any:
        """The arguments that an op wrote into are new values."""
        written = [args[position] for position in positions if position < len(args)]
        written += [kwargs[name] for name in names if name in kwargs] if kwargs else []
        for found in written:
            for tensor in found if isinstance(found, (list, tuple)) else (found,):
                if isinstance(tensor, Tensor):
                    renew_one(tensor, type(tensor))
        return written[0] if written else None

    def renew_one(tensor: Tensor, cls: type) -> None:
        known = living.get(id(tensor))
        before = known[1] & NUMBER_MASK if known is not None and known[0]() is tensor else NONE
        try:
            if cls is Tensor or cls is Parameter:
                begin(tensor, cls, before)
                return
        except Exception as refusal:  # no version, no strides: looked at again with care
            foreign(refusal)
        table.forget_all(tensor)

    return made, renew


def _settle_op(table: ValueTable, tensor: Tensor, known: tuple[Any, ...]) -> int:
    """Complete the value of a tensor that an op made: its version and gradient are what they will be."""
    reference, value, _, meta, before = known
    version, grad = tensor._version, tensor.requires_grad
    if version or grad != meta[4]:
        meta = (*meta[:4], grad, meta[5])
        value = table.describe(value & NUMBER_MASK, meta, version, storage_address(tensor), before)
    table.living[id(tensor)] = (reference, value, version)
    return value


def read_unseen(tensor: Tensor, cls: type) -> tuple[Meta, int, int]:
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
    except Exception as refusal:
        foreign(refusal)
        return None
