"""Describes arguments and results: each tensor becomes a value id, and everything else a small hashable *form*.

A form starts with the number of positional arguments. The positional arguments follow, then the names and values of the
keyword arguments: ``F.softmax(x, dim=-1)`` has the form ``(1, None, "dim", -1)``. In a form, None stands for a tensor,
an int for itself, a str for text as it will be shown, and a tuple for a container: first a tag, then its items.
Programs repeat a few forms, so a record stores only the number of its form.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from types import BuiltinFunctionType, EllipsisType, FunctionType, MemberDescriptorType, NoneType
from typing import Any

from torchglass.capture.engine.value_table import ValueOf
from torchglass.capture.torch.names import DEVICE, SIZE, WORDS, Parameter, Tensor
from torchglass.events.spelling import MAX_INT_BITS, int_word
from torchglass.journal.layout import ARGS, FORM, INPUTS, NONE
from torchglass.journal.rows import DICT, FIELDS, LIST, SLICE, TUPLE, encoded
from torchglass.journal.writer import Journal, OpenRecords, ThreadWriter

Form = tuple[Any, ...]
Describe = Callable[..., Any]
"""A function that takes (value, values, room=None), appends the ids of the value's tensors to ``values``, and returns
the value's part of a form. ``room`` is a list of two limits: how many more items and how many more levels to read."""
# These limits keep a form small, whatever the program passes to a function.
LONGEST_TEXT = 200
"""The most characters of a text."""
LONGEST_LIST = 64
"""The most items of a list, tuple or dict. A longer one is shown by its length, unless its first item is a tensor."""
DEEPEST = 8
"""How many containers may be nested in each other."""
MOST_ITEMS = 1_000
"""The most items of one argument, over all levels, because a list may contain itself, or one list many times."""

_name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
_module_of: Callable[[type], Any] = type.__dict__["__module__"].__get__
_CONSTANTS: dict[Any, str] = {None: "None", True: "True", False: "False"}


class Forms:
    """All forms of one session."""

    def __init__(self, journal: Journal, value_of: ValueOf, made: ValueOf) -> None:
        self._journal = journal
        self.ids: dict[Form, int] = {}
        self.numbers = count()
        self._pinned: dict[Form, int] = {}
        """Forms whose numbers stay valid for the whole recording."""
        self.generation = 0
        """The count of calls of ``carry``. Each makes the numbers of all forms that are not pinned invalid for new
        records."""
        self._readers = Readers()
        self._describing: list[Describe] = []
        self._ways: tuple[ValueOf, ...] = (value_of, made)
        self._describe: Describe | None = None
        self._describe_made: Describe | None = None
        self.on_carry: Callable[[], Any] = _nothing
        """Called when the numbers become invalid, so that other caches of them are cleared."""

    @property
    def describe(self) -> Describe:
        """The describe function for values that are complete.

        It is made at its first use, because the compiled engine rarely needs it.
        """
        # Not a cached_property: in a forked child, its lock might stay locked forever.
        if self._describe is None:
            self._describe = self.describing(self._ways[0])
        return self._describe

    @property
    def describe_made(self) -> Describe:
        """The describe function for the results of ops, whose versions autograd has not set yet."""
        if self._describe_made is None:
            self._describe_made = self.describing(self._ways[1])
        return self._describe_made

    def describe_named(self, kwargs: dict[str, Any], form: list[Any], values: list[int]) -> None:
        """Append the names and the descriptions of keyword arguments to a form."""
        describe = self.describe
        for name, arg in kwargs.items():
            form += (name, describe(arg, values))

    def describing(self, value_of: ValueOf) -> Describe:
        """Return a describe function that gets the values of tensors from ``value_of``."""
        self._describing.append(_make_describe(value_of, self._readers))
        return self._describing[-1]

    def release(self) -> None:
        """Break the reference cycles between the describe functions, after the recording has ended."""
        self._ways = ()
        for function in self._describing:
            for cell in getattr(function, "__closure__", None) or ():
                with suppress(ValueError):  # the cell may be empty already
                    del cell.cell_contents

    def is_opaque(self, cls: type) -> bool:
        """Return whether every object of this class is shown as the same text, such as the name of the class."""
        return self.constant(cls) is not None

    def constant(self, cls: type) -> str | None:
        """Return the text that describes every value of a class, or None if the values have different texts."""
        reader = self._readers.get(id(cls)) or self._readers.learn(cls)
        return getattr(reader, "text", None)

    def intern(self, form: Form) -> int:
        """Write a new form and return its number. The journal may drop the form when no kept record refers to it."""
        number = next(self.numbers)
        self._journal.passing.add(FORM, number, form_bytes(form))
        self.ids[form] = number
        return number

    def pin(self, form: Form) -> int:
        """Return the number of a form that stays valid for the whole recording. Write the form if it is new."""
        number = self._pinned.get(form)
        if number is None:
            number = next(self.numbers)
            self._journal.rows.add(FORM, number, form_bytes(form))
            self.ids[form] = self._pinned[form] = number
        return number

    def carry(self, log: ThreadWriter, opened: OpenRecords) -> OpenRecords:
        """Begin a new generation of numbers, and return the open records with new numbers and ids.

        The old forms and ids may be dropped with the chunks that hold them, but open records move to a new chunk.
        """
        wanted = {words[ARGS] for _, words in opened}
        found = {number: form for form, number in list(self.ids.items()) if number in wanted}
        self.generation += 1
        self.ids.clear()
        self.ids.update(self._pinned)
        # Clear the other caches last: until the numbers have changed here, they could cache an old number again.
        self.on_carry()
        return [
            (number, self._renewed(log, words, found.get(words[ARGS]))) for number, words in opened
        ]

    def _renewed(self, log: ThreadWriter, words: list[int], form: Form | None) -> list[int]:
        words = list(words)
        # The form is from an earlier generation, so the arguments are no longer known.
        if form is None:
            words[ARGS], words[INPUTS] = self.pin(form_of_result("…")), NONE
            return words
        count = _tensors_in(form)
        ids = log.journal.streams.ids(log.number, words[INPUTS], count)
        words[ARGS] = self.intern(form)
        if len(ids) == count and count:
            words[INPUTS] = log.add_ids(ids)
        else:
            words[INPUTS] = NONE
        return words


def form_of_result(description: Any) -> Form:
    """Return the form of a result or of a variable, from its description.

    The description stands where a call has its only positional argument, so all forms are read in one way.
    """
    return (1, description)


def _nothing() -> None:
    """Do nothing, because no other cache holds numbers of forms."""


_kept_bytes: dict[Form, bytes] = {}
"""The encoded bytes of forms. They are cached for the process, because all recordings share many forms."""
MOST_KEPT = 4096
"""The most forms in that cache, to limit its memory."""


def form_bytes(form: Form) -> bytes:
    """Return the bytes of a form's row."""
    known = _kept_bytes.get(form)
    if known is None:
        try:
            known = encoded(form)
        except ValueError:  # Python refuses to convert an int of thousands of digits to text
            return encoded(_spelt(form))
        if len(_kept_bytes) < MOST_KEPT:
            _kept_bytes[form] = known
    return known


def _spelt(item: Any) -> Any:
    if type(item) is tuple:
        return [_spelt(each) for each in item]
    if type(item) is int and item.bit_length() > MAX_INT_BITS:
        return int_word(item)
    return item


def _tensors_in(item: Any) -> int:
    """Return how many tensors a form has."""
    if type(item) is tuple:
        return sum(map(_tensors_in, item))
    return int(item is None)


def _make_describe(value_of: ValueOf, readers: Readers) -> Describe:
    """Make the function that describes values. It reads the most common values without a call for each item.

    The function compares classes by ``is`` and ``id``, because a metaclass may define ``__eq__`` and ``__hash__``.
    """

    def describe(value: Any, values: list[int], room: list[int] | None = None) -> Any:
        cls = type(value)
        if cls is Tensor or cls is Parameter:
            values.append(value_of(value))
            return None
        if cls is int:
            return value
        if value is None or value is True or value is False:
            return _CONSTANTS[value]
        if cls is list:
            tag = LIST
        elif cls is tuple:
            tag = TUPLE
        else:
            tag = None
        if tag is not None and len(value) <= LONGEST_LIST:
            return sequence(tag, value, cls, values, room or [MOST_ITEMS, DEEPEST])
        try:
            read = readers[id(cls)]
        except KeyError:
            read = readers.learn(cls)
        if read is None:
            values.append(value_of(value))
            return None
        found = read(value)
        if type(found) is not tuple:
            return found
        most = MOST_ITEMS
        if cls is UncappedList:
            most = len(value)
        return nested(found, cls, values, room or [most, DEEPEST])

    def sequence(tag: str, items: Any, cls: type, values: list[int], room: list[int]) -> Any:
        room[0] -= len(items)
        if room[0] < 0 or room[1] == 0:
            return f"<{_name_of(cls)} of {len(items)}>"
        room[1] -= 1
        form: list[Any] = [tag]
        for item in items:
            form.append(item if type(item) is int else describe(item, values, room))
        room[1] += 1
        return tuple(form)

    def nested(found: tuple[str, Items], cls: type, values: list[int], room: list[int]) -> Any:
        tag, items = found
        room[0] -= len(items)
        if room[0] < 0 or room[1] == 0:
            return f"<{_name_of(cls)} of {len(items)}>"
        room[1] -= 1
        form: list[Any] = [tag]
        if tag == FIELDS:
            form.append(_name_of(cls))
        for name, item in items:
            if name is not None:
                form.append(name)
            form.append(describe(item, values, room))
        room[1] += 1
        return tuple(form)

    return describe


class UncappedList(list[Any]):
    """A list that torchglass makes and whose items are all described, however many there are."""


Items = list[tuple[str | None, Any]]
Reader = Callable[[Any], Any]
"""A function that returns the text of a value, or the tag and the items of a container."""


class Readers(dict[int, Reader | None]):
    """The reader for the values of each class, keyed by ``id`` of the class. It is None for tensors and arrays."""

    def __init__(self) -> None:
        self._classes: list[type] = []
        """References to the classes, so that no new class can get the same ``id``."""

    def learn(self, cls: type) -> Reader | None:
        """Choose the reader for the values of a class, once for each class."""
        self._classes.append(cls)
        reader = self[id(cls)] = _reader(cls)
        return reader


def _reader(cls: type) -> Reader | None:
    numpy = sys.modules.get("numpy")
    if issubclass(cls, Tensor) or (numpy is not None and issubclass(cls, numpy.ndarray)):
        return None  # `isinstance` on the value would read its `__class__`, which may run code of the program
    if id(cls) in _ATOMS:
        return _ATOMS[id(cls)]
    if cls is UncappedList:
        return lambda value: (LIST, [(None, item) for item in value])
    if numpy is not None and issubclass(cls, numpy.generic) and _module_of(cls) == "numpy":
        return _reader_of_numpy(numpy, cls)
    if issubclass(cls, dict):
        if cls is not dict and _is_dataclass(cls):
            return _read_fields_of_dict
        return _read_dict
    names = _field_names(cls)
    if names is not None:
        slots = _field_slots(cls, names)
        return lambda value: (FIELDS, _fields(value, cls, names, slots))
    if issubclass(cls, list):
        return partial(_read_list, list, LIST)
    if issubclass(cls, tuple):
        return partial(_read_list, tuple, TUPLE)
    if cls is slice:
        return lambda value: (SLICE, [(None, value.start), (None, value.stop), (None, value.step)])
    if cls is FunctionType or cls is BuiltinFunctionType:
        return lambda value: f"<function {value.__name__}>"[:LONGEST_TEXT]
    name = f"<{_name_of(cls)}>"[:LONGEST_TEXT]
    if any(
        _name_of(each) == "Image" and _module_of(each) == "PIL.Image"
        for each in type.__getattribute__(cls, "__mro__")
    ):
        return lambda value: _picture(value) or name
    # All other values are shown by the name of their type, because a `__repr__` of the program is never called.
    return _constant(name)


def _constant(text: str) -> Reader:
    """Return a reader that gives the same text for every value."""

    def read(value: Any) -> str:
        return text

    read.__dict__["text"] = text
    return read


def _picture(value: Any) -> str:
    """Return a text such as ``Image(RGB, 640×480)``, or "" if it is unknown.

    Only the object's dictionary is read, so no property of the program's class runs.
    """
    held = object.__getattribute__(value, "__dict__")
    size = held.get("_size")
    mode = held.get("_mode", held.get("mode"))
    if (
        type(mode) is not str
        or type(size) is not tuple
        or [type(each) for each in size] != [int, int]
    ):
        return ""
    return f"Image({mode}, {size[0]}×{size[1]})"[:LONGEST_TEXT]


def _reader_of_numpy(numpy: Any, cls: type) -> Reader:
    """Return a reader for a class of numpy scalars.

    A numpy record is shown by its type only, because it may hold objects of the program.
    """
    if issubclass(cls, str):
        return lambda value: _text(str(value))
    if issubclass(cls, bytes):
        return _bytes
    if issubclass(cls, numpy.void):
        return _type_name
    return lambda value: str(value)[:LONGEST_TEXT]


def _read_list(plain: Any, tag: str, value: Any) -> Any:
    """Read a list or tuple with the methods of the base class, also if the program defines a subclass."""
    length = plain.__len__(value)
    if length > LONGEST_LIST and not issubclass(type(plain.__getitem__(value, 0)), Tensor):
        return f"<{_name_of(type(value))} of {length}>"
    return tag, [(None, item) for item in plain.__iter__(value)]


def _read_dict(value: Any) -> Any:
    if dict.__len__(value) > LONGEST_LIST:
        return f"<{_name_of(type(value))} of {dict.__len__(value)}>"
    return DICT, [
        (str(_ATOMS.get(id(type(key)), _type_name)(key)), item)
        for key, item in list(dict.items(value))
    ]


def _read_fields_of_dict(value: Any) -> Any:
    """Read the fields that are set of an object that is both dict and dataclass, such as transformers' ModelOutput."""
    return FIELDS, [(key, item) for key, item in list(dict.items(value)) if type(key) is str]


def _is_dataclass(cls: type) -> bool:
    return any("__dataclass_fields__" in vars(each) for each in cls.__mro__)


def _field_names(cls: type) -> tuple[str, ...] | None:
    """Return the field names of a named tuple, a result type of torch (``torch.return_types.max``) or a dataclass.

    Return None for other classes.
    """
    if issubclass(cls, tuple):
        fields = vars(cls).get("_fields") or getattr(cls, "__match_args__", None)
        if type(fields) is tuple:
            return fields
        return None
    return tuple(cls.__dataclass_fields__) if _is_dataclass(cls) else None  # type: ignore[attr-defined]


def _field_slots(cls: type, names: tuple[str, ...]) -> list[tuple[str, MemberDescriptorType]]:
    """Return the fields that are stored in slots. Search once for each class, which may have hundreds of attributes."""
    every = (item for each in cls.__mro__ for item in vars(each).items())
    return [
        (name, slot) for name, slot in every if type(slot) is MemberDescriptorType and name in names
    ]


def _fields(
    value: Any, cls: type, names: tuple[str, ...], slots: list[tuple[str, MemberDescriptorType]]
) -> Items:
    """Read the fields of an object without running code of its class.

    The fields are the items of a tuple, or come from the object's dictionary or its slots.
    """
    if issubclass(cls, tuple):
        return [(name, item) for name, item in zip(names, tuple.__iter__(value), strict=False)]
    try:
        held = dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        held = {}
    for name, slot in slots:
        if name not in held:
            try:
                held[name] = slot.__get__(value, cls)
            except AttributeError:
                pass  # the slot was never set
    return [(name, held[name]) for name in names if name in held]


def _text(value: Any) -> str:
    text = repr(value[:LONGEST_TEXT])
    if len(value) <= LONGEST_TEXT:
        return text
    return text + "…"


def _bytes(value: Any) -> str:
    return f"<bytes of {len(value)}>"


def _type_name(value: Any) -> str:
    return f"<{_name_of(type(value))}>"


def _size(value: Any) -> Any:
    return LIST, [(None, size if type(size) is int else "?") for size in value[:LONGEST_LIST]]


_READERS: dict[type, Reader] = {
    NoneType: lambda value: "None",
    bool: repr,
    float: repr,
    complex: repr,
    str: _text,
    bytes: _bytes,
    EllipsisType: lambda value: "...",
    int: int_word,
    DEVICE: lambda value: repr(str(value)),
    SIZE: _size,
    **dict.fromkeys(WORDS, str),
}
_ATOMS = {id(cls): read for cls, read in _READERS.items()}
"""The same readers, keyed by ``id`` of the class. That is safe because these classes are never freed."""
