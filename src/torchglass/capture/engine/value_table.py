"""Tells tensors apart: identity, version and metadata of every tensor that an event took or gave.

This is the only place that reads tensors. A tensor is identified by ``id`` plus a weak reference (ids are reused at
once); its metadata is interned, so that a value costs four ints.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from torchglass.capture.engine.log import LOGS
from torchglass.capture.torch.names import (
    Parameter,
    Tensor,
    no_functions,
    no_subclasses,
    storage_address,
)
from torchglass.capture.transparency.ours import foreign
from torchglass.journal.layout import META, NONE, NUMBER_BITS, NUMBER_MASK, VALUE, pack_value
from torchglass.journal.rows import MetaRow, encoded
from torchglass.journal.writer import Journal
from torchglass.system import get_ident

ValueOf = Callable[[Tensor], int]
Meta = tuple[Any, ...]
"""The tuple (shape, stride, dtype, device, requires_grad, class), and the layout if the tensor is not strided.
An entry is None if torch raises when it is read."""

LONGEST_DTYPE = 40
"""The most characters of a numpy dtype, since a structured dtype can be long."""
DEEPEST_BASE = 32
"""How many ``base`` attributes of numpy arrays to follow."""
# Special values in place of a version:
UNVERSIONED = -1
"""Torch keeps no version for this tensor (an inference tensor)."""
CHANGED = -2
"""The tensor may have changed without a new version, so it is read again at its next use."""
PENDING = -3
"""An op made or wrote the tensor. Its version and ``requires_grad`` are final only when autograd has returned, so they
are read again at its next use (``_complete_pending``)."""
ARRAY = "array"
"""Stands in place of the layout for numpy arrays."""


class ValueTable:
    """All values of one session, and the living tensors among them.

    A value is passed around as one int: its number, and above that the row of its metadata (journal/layout.py).
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.living: dict[int, tuple[Any, ...]] = {}
        """Keyed by ``id``: a weak reference to the tensor, its value, and its version when it had that value.

        While the version is PENDING, two more entries follow: the metadata, and the number of the previous value.
        For a tensor that may refuse to be read, the version is a pair: the version and the row of the metadata."""
        self.metas: dict[Meta, int] = {}
        self._meta_numbers = itertools.count()
        self.roots: dict[int, Any] = {}
        """Keyed by ``id`` of an array that no event took or gave: a weak reference to a known view of that array."""
        self.from_ops = False
        """Whether ops may have made some of the living tensors."""
        self.ids = itertools.count()
        self.value_of_unusual: Callable[[Tensor, type], int]
        """Returns the value of a tensor that may refuse to be read, such as a subclass or a sparse or nested tensor."""
        self.plain_value_of: ValueOf
        """A ``value_of`` for callers who know that the class is Tensor or Parameter."""
        self.value_of: ValueOf
        self.value_after_op: ValueOf
        self.new_values_for_written: WrittenValues
        self._bind()

    def _bind(self) -> None:
        self.value_of = _make_value_of(self, self._journal)
        self.value_after_op, self.new_values_for_written = _make_for_ops(self, self._journal)

    def meta_id(self, meta: Meta) -> int:
        """Return the number of the row of some metadata. Write the row if it is new."""
        number = self.metas.get(meta)
        if number is None:
            number = next(self._meta_numbers)
            self._journal.rows.add(META, number, meta_bytes(meta))
            self.metas[meta] = number
        return number

    def __len__(self) -> int:
        """Return how many tensors are in the table. Some of them may have been freed."""
        return len(self.living)

    def is_known(self, found: Any) -> bool:
        """Return whether this very object already has a value."""
        known = self.living.get(id(found))
        return known is not None and known[0]() is found

    def last_number(self, tensor: Any) -> int:
        """Return the number of a tensor's last value, or NONE if the tensor has not occurred."""
        known = self.living.get(id(tensor))
        if known is None:
            return NONE
        return known[1] & NUMBER_MASK

    def living_objects(self) -> list[Any]:
        """Return the living tensors and arrays among the values."""
        return [found for known in list(self.living.values()) if (found := known[0]()) is not None]

    def forget(self, *tensors: Tensor) -> None:
        """Remove these tensors from the table, including the weak references."""
        for tensor in tensors:
            self.living.pop(id(tensor), None)

    def mark_all_changed(self, found: Any) -> None:
        """Mark a tensor, or each of a list, as changed."""
        for tensor in found if isinstance(found, (list, tuple)) else (found,):
            self.mark_changed(tensor)

    def mark_changed(self, tensor: Any) -> None:
        """Make the next use of a tensor a new value."""
        known = self.living.get(id(tensor))
        if known is not None:
            self.living[id(tensor)] = (known[0], known[1], CHANGED)

    def lies_in(self, found: Any, owner: Any) -> None:
        """Record that ``found`` uses the memory of ``owner``, another tensor or array, as if it was made from it."""
        # First the owner: if both are new, its value number is the smaller one.
        other = self.value_of(owner)
        value = self.value_of(found)
        meta, version, address = read_unseen(found, type(found))
        self.describe(value & NUMBER_MASK, meta, version, address, -2 - (other & NUMBER_MASK))

    def describe(self, number: int, meta: Meta, version: int, address: int, before: int) -> int:
        """Write or overwrite the row of a value, and return the packed value."""
        meta_id = self.meta_id(meta)
        self._journal.values.write(number, version, address, before, meta_id)
        return number | meta_id << NUMBER_BITS

    def release(self) -> None:
        """Drop the functions that refer to this table, after the recording has ended, to break reference cycles."""
        for name in (
            "value_of",
            "plain_value_of",
            "value_of_unusual",
            "value_after_op",
            "new_values_for_written",
            "mark_changed",
        ):
            self.__dict__.pop(name, None)

    def clear(self) -> None:
        """Complete the pending values of the last ops, then forget all living tensors. Their rows stay."""
        if self.from_ops:
            with no_functions():
                for known in list(self.living.values()):
                    tensor = None
                    if known[2] == PENDING:
                        tensor = known[0]()
                    if tensor is not None:
                        _complete_pending(self, tensor, known)
        self.living.clear()


_metas_known: dict[Meta, bytes] = {}
"""The encoded rows of metadata. They are cached for the process, because recordings share many of them."""
MOST_KEPT = 4096
"""The most rows in that cache, to limit its memory."""


def meta_bytes(meta: Meta) -> bytes:
    """Return the encoded row of some metadata."""
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
        # The cache keeps its classes alive, so it must not hold classes of the program.
        if len(_metas_known) < MOST_KEPT and (cls is Tensor or cls is Parameter):
            _metas_known[meta] = known
    return known


def _word(name: Any) -> str:
    if name is None:
        return "?"
    return str(name).removeprefix("torch.")


def _make_value_of(table: ValueTable, journal: Journal) -> ValueOf:
    """Make ``value_of``, which returns the value of a tensor as it is now and is the hottest function of the recorder.

    ``value_of`` is a closure, to avoid lookups on ``self``. A known tensor has the same value as long as its version is
    the same. Functions that change a tensor without a new version (``t.data = …``, ``requires_grad_``) mark it as
    changed.
    """
    living = table.living
    metas = table.metas
    meta_id_of = table.meta_id
    values = journal.values
    next_id = table.ids.__next__
    ref = weakref.ref

    def value_of(tensor: Tensor) -> int:
        cls = type(tensor)
        if cls is Tensor or cls is Parameter:
            return plain_value_of(tensor)
        return value_of_unusual(tensor, cls)

    def plain_value_of(tensor: Tensor) -> int:
        place = id(tensor)
        before = NONE
        try:
            version = tensor._version
            known = living.get(place)
            if known is not None and known[0]() is tensor:
                if known[2] == version:
                    return known[1]
                if known[2] == PENDING:
                    return _complete_pending(table, tensor, known)
                before = known[1] & NUMBER_MASK
            # The stride comes first: tensors without one (sparse) raise here, so the layout of all others is strided.
            stride = tensor.stride()
            meta = (
                tensor.shape,
                stride,
                tensor.dtype,
                tensor.device,
                tensor.requires_grad,
                type(tensor),
            )
            # The lookup raises if sizes are symbolic, because they cannot be hashed.
            meta_id = metas.get(meta)
            address = storage_address(tensor)
        except Exception as refusal:
            foreign(refusal)
            return value_of_unusual(tensor, type(tensor))
        if meta_id is None:
            meta_id = meta_id_of(meta)
        number = next_id()
        value = number | meta_id << NUMBER_BITS
        living[place] = (ref(tensor), value, version)
        if values.first <= number < values.end:
            pack_value(
                values.buffer, number * VALUE + values.shift, version, address, before, meta_id + 1
            )
        else:
            values.write(number, version, address, before, meta_id)
        return value

    def value_of_unusual(tensor: Tensor, cls: type) -> int:
        meta, version, address = read_unseen(tensor, cls)
        meta_id = meta_id_of(meta)
        before = NONE
        known = living.get(id(tensor))
        if known is not None and known[0]() is tensor:
            before = known[1] & NUMBER_MASK
            if known[2] == (version, meta_id):
                return known[1]
        number = next_id()
        value = number | meta_id << NUMBER_BITS
        living[id(tensor)] = (ref(tensor), value, (version, meta_id))
        values.write(number, version, address, before, meta_id)
        return value

    table.value_of_unusual = value_of_unusual
    table.plain_value_of = plain_value_of
    return value_of


WrittenValues = Callable[
    [tuple[Any, ...], dict[str, Any] | None, tuple[int, ...], tuple[str, ...]], Any
]
"""A function that takes (args, kwargs, positions, names) of an op, gives each argument that the op wrote into a new
value, and returns the first such argument."""


def _make_for_ops(table: ValueTable, journal: Journal) -> tuple[ValueOf, WrittenValues]:
    """Make the two functions that read tensors when an op has returned but autograd has not."""
    living = table.living
    metas = table.metas
    meta_id_of = table.meta_id
    values = journal.values
    next_id = table.ids.__next__

    def begin_pending(tensor: Tensor, cls: type, before: int) -> int:
        meta = (
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            cls,
        )
        version = tensor._version
        address = storage_address(tensor)
        meta_id = metas.get(meta)
        if meta_id is None:
            meta_id = meta_id_of(meta)
        number = next_id()
        value = number | meta_id << NUMBER_BITS
        living[id(tensor)] = (weakref.ref(tensor), value, PENDING, meta, before)
        if values.first <= number < values.end:
            pack_value(
                values.buffer, number * VALUE + values.shift, version, address, before, meta_id + 1
            )
        else:
            values.write(number, version, address, before, meta_id)
        return value

    def value_after_op(tensor: Tensor) -> int:
        """Return the value of a tensor that an op returned."""
        cls = type(tensor)
        known = living.get(id(tensor))
        if (cls is Tensor or cls is Parameter) and (known is None or known[0]() is not tensor):
            try:
                return begin_pending(tensor, cls, NONE)
            except Exception as refusal:
                foreign(refusal)
                return table.value_of_unusual(tensor, cls)
        if known is not None and known[2] == PENDING and known[0]() is tensor:
            return known[1]
        return table.value_of(tensor)

    def new_values_for_written(
        args: Any, kwargs: Any, positions: tuple[int, ...], names: tuple[str, ...]
    ) -> Any:
        """Make the arguments that an op wrote into new values."""
        written = [args[position] for position in positions if position < len(args)]
        if kwargs:
            written += [kwargs[name] for name in names if name in kwargs]
        for found in written:
            for tensor in found if isinstance(found, (list, tuple)) else (found,):
                if isinstance(tensor, Tensor):
                    new_value_for_written(tensor, type(tensor))
        if written:
            return written[0]
        return None

    def new_value_for_written(tensor: Tensor, cls: type) -> None:
        known = living.get(id(tensor))
        before = NONE
        if known is not None and known[0]() is tensor:
            before = known[1] & NUMBER_MASK
        try:
            if cls is Tensor or cls is Parameter:
                begin_pending(tensor, cls, before)
                return
        except Exception as refusal:  # no version or no strides: it is read again at its next use
            foreign(refusal)
        table.mark_all_changed(tensor)

    return value_after_op, new_values_for_written


def _complete_pending(table: ValueTable, tensor: Tensor, known: tuple[Any, ...]) -> int:
    """Complete a pending value. Autograd has returned, so the version and ``requires_grad`` are final."""
    reference, value, _, meta, before = known
    version = tensor._version
    grad = tensor.requires_grad
    if version or grad != meta[4]:
        meta = (*meta[:4], grad, meta[5])
        value = table.describe(value & NUMBER_MASK, meta, version, storage_address(tensor), before)
    table.living[id(tensor)] = (reference, value, version)
    return value


def read_unseen(tensor: Tensor, cls: type) -> tuple[Meta, int, int]:
    """Read a tensor while recording is off in this thread, because reading a subclass may dispatch ops."""
    if not issubclass(cls, Tensor):
        return _read_array(tensor, cls)
    log = LOGS.get(get_ident())
    if log is None:
        return _read_carefully(tensor, cls)
    was_on = log.on
    log.on = False
    try:
        return _read_carefully(tensor, cls)
    finally:
        log.on = was_on


def _read_carefully(tensor: Tensor, cls: type) -> tuple[Meta, int, int]:
    """Read the metadata of a tensor that may refuse: subclass, sparse, nested, lazy, inference or functorch tensors."""
    with no_subclasses():
        meta = (
            _ask(lambda: tuple(map(_plain_size, _attribute(tensor, cls, "shape")))),
            _ask(lambda: tuple(map(_plain_size, _attribute(tensor, cls, "stride")()))),
            _ask(lambda: _attribute(tensor, cls, "dtype")),
            _ask(lambda: _attribute(tensor, cls, "device")),
            _ask(lambda: bool(_attribute(tensor, cls, "requires_grad"))),
            cls,
            _ask(lambda: _attribute(tensor, cls, "layout")),
        )
        version = _ask(lambda: _attribute(tensor, cls, "_version"))
        address = _ask(lambda: storage_address(tensor))
    return meta, UNVERSIONED if version is None else version, address or 0


def _attribute(tensor: Tensor, cls: type, name: str) -> Any:
    """Return an attribute as a class of torch defines it, because a class of the program may override it with code."""
    for each in cls.__mro__:
        if name in each.__dict__ and each.__module__.partition(".")[0] == "torch":
            return each.__dict__[name].__get__(tensor, cls)
    raise AttributeError(name)


def _read_array(array: Any, cls: type) -> tuple[Meta, int, int]:
    """Read a numpy array through the attributes of ``numpy.ndarray``, which a subclass may override."""
    plain = sys.modules["numpy"].ndarray
    shape, strides, dtype = (
        vars(plain)[name].__get__(array) for name in ("shape", "strides", "dtype")
    )
    item = max(dtype.itemsize, 1)
    meta = (
        shape,
        tuple([step // item for step in strides]),
        str(dtype)[:LONGEST_DTYPE],
        "cpu",
        False,
        cls,
        ARRAY,
    )
    return meta, UNVERSIONED, _memory_of(array, plain)


def _memory_of(array: Any, plain: type) -> int:
    """Return an address that all arrays over one buffer share: that of the storage if a tensor owns the buffer."""
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
    """Return a size as an int, or -1 for a symbolic or ragged size: converting it would add guards to the program."""
    if type(size) is int:
        return size
    return -1


def _ask(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as refusal:
        foreign(refusal)
        return None
