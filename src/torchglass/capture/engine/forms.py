"""Arguments and results as they stood: tensors become value ids, the rest a small hashable form.

A *form* says all but the tensors: ``F.softmax(x, dim=-1)`` is ``(1, None, "dim", -1)``. Programs repeat a few
forms for ever, so a record keeps one int. In a form None stands for a tensor, an int for itself, a str for
text as it will be shown, a tuple for something nested: a tag, then its items.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from types import BuiltinFunctionType, EllipsisType, FunctionType, MemberDescriptorType, NoneType
from typing import Any

from torchglass.capture.engine.values import ValueOf
from torchglass.capture.torch.names import DEVICE, SIZE, WORDS, Parameter, Tensor
from torchglass.events.spelling import LONGEST_INT, int_word
from torchglass.journal.layout import ARGS, FORM, INPUTS, NONE
from torchglass.journal.rows import DICT, FIELDS, LIST, SLICE, TUPLE, encoded
from torchglass.journal.writer import Journal, Open, ThreadWriter

Form = tuple[Any, ...]
Describe = Callable[..., Any]
"""(value, values, depth=0) → the value's part of a form; the tensors in it are appended to values."""
LONGEST_TEXT = 200
LONGEST_LIST = 64
DEEPEST = 8
MOST_ITEMS = 1_000
"""Of one argument: lists may contain themselves, or each other many times over."""

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
        """Forms whose numbers are used for ever."""
        self.generation = 0
        """Grows when all other numbers have lost their meaning for what is recorded from now on."""
        self._readers = Readers()
        self._describing: list[Describe] = []
        self._ways: tuple[ValueOf, ...] = (value_of, made)
        self._describe: Describe | None = None
        self._describe_made: Describe | None = None
        self.on_carry: Callable[[], Any] = _nothing
        """Told when the numbers lose their meaning."""

    @property
    def describe(self) -> Describe:
        """Made when it is first asked for, as C does most without it."""
        if self._describe is None:  # not a cached_property: its lock might be held for ever in a forked child
            self._describe = self.describing(self._ways[0])
        return self._describe

    @property
    def describe_made(self) -> Describe:
        """For the results of ops, to which autograd has yet to do its part."""
        if self._describe_made is None:
            self._describe_made = self.describing(self._ways[1])
        return self._describe_made

    def describe_named(self, kwargs: dict[str, Any], form: list[Any], values: list[int]) -> None:
        """Append the names and the descriptions of keyword arguments to a form."""
        describe = self.describe
        for name, arg in kwargs.items():
            form += (name, describe(arg, values))

    def describing(self, value_of: ValueOf) -> Describe:
        """A describe that learns the values of tensors from somebody else."""
        self._describing.append(_make_describe(value_of, self._readers))
        return self._describing[-1]

    def let_go(self) -> None:
        """The recording has ended: the functions that call each other let go of each other."""
        self._ways = ()
        for function in self._describing:
            for cell in getattr(function, "__closure__", None) or ():
                with suppress(ValueError):  # it may be empty already
                    del cell.cell_contents

    def is_opaque(self, cls: type) -> bool:
        """Whether of an object of this class only the name of the class is shown, whatever it holds."""
        return self.constant(cls) is not None

    def constant(self, cls: type) -> str | None:
        """What every value of a class is described by, where that is the same for all."""
        reader = self._readers.get(id(cls)) or self._readers.learn(cls)
        return getattr(reader, "text", None)

    def intern(self, form: Form) -> int:
        """The number of a form; what a program makes without end goes again when nothing that is kept refers to it."""
        number = next(self.numbers)
        self._journal.passing.add(FORM, number, form_bytes(form))
        self.ids[form] = number
        return number

    def pin(self, form: Form) -> int:
        """The number of a form, for ever."""
        number = self._pinned.get(form)
        if number is None:
            number = next(self.numbers)
            self._journal.rows.add(FORM, number, form_bytes(form))
            self.ids[form] = self._pinned[form] = number
        return number

    def carry(self, log: ThreadWriter, opened: Open) -> Open:
        """Begin a new generation; the records under way get numbers and ids that are as new as the chunk they go to."""
        wanted = {words[ARGS] for _, words in opened}
        found = {number: form for form, number in list(self.ids.items()) if number in wanted}
        self.generation += 1
        self.ids.clear()
        self.ids.update(self._pinned)
        self.on_carry()  # last: what others have looked up here before must not be remembered there behind it
        return [(number, self._renewed(log, words, found.get(words[ARGS]))) for number, words in opened]

    def _renewed(self, log: ThreadWriter, words: list[int], form: Form | None) -> list[int]:
        words = list(words)
        if form is None:  # of a generation before: what it took is not known any more
            words[ARGS], words[INPUTS] = self.pin((1, "…")), NONE
            return words
        count = _tensors_in(form)
        ids = log.journal.streams.ids(log.number, words[INPUTS], count)
        words[ARGS] = self.intern(form)
        words[INPUTS] = log.add_ids(ids) if len(ids) == count and count else NONE
        return words


def _nothing() -> None:
    """Nobody else keeps numbers."""


_kept_bytes: dict[Form, bytes] = {}
"""Kept for the process: the same few forms come in every recording."""
MOST_KEPT = 4096


def form_bytes(form: Form) -> bytes:
    """The bytes of a form's row."""
    known = _kept_bytes.get(form)
    if known is None:
        try:
            known = encoded(form)
        except ValueError:  # an int of thousands of digits, which Python refuses to spell
            return encoded(_spelt(form))
        if len(_kept_bytes) < MOST_KEPT:
            _kept_bytes[form] = known
    return known


def _spelt(item: Any) -> Any:
    if type(item) is tuple:
        return [_spelt(each) for each in item]
    return int_word(item) if type(item) is int and item.bit_length() > LONGEST_INT else item


def _tensors_in(item: Any) -> int:
    """How many tensors there is a place for in a form."""
    return sum(map(_tensors_in, item)) if type(item) is tuple else int(item is None)


def _make_describe(value_of: ValueOf, readers: Readers) -> Describe:
    """What is met all the time (None, True, plain lists and tuples) is read here, without a call for each item.

    Classes are told apart by ``is`` and ``id``: a metaclass may have its own ``__eq__`` and ``__hash__``.
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
        tag = LIST if cls is list else TUPLE if cls is tuple else None
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
        most = len(value) if cls is Whole else MOST_ITEMS
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


class Whole(list[Any]):
    """A list of ours of which every item is described, however many there are."""


Items = list[tuple[str | None, Any]]
Reader = Callable[[Any], Any]
"""Gives the text of a value, or the tag and the items of a container."""


class Readers(dict[int, Reader | None]):
    """How values of a class are read, by the ``id`` of the class; None for tensors and arrays."""

    def __init__(self) -> None:
        self._classes: list[type] = []
        """Kept, or another class could get the id of one."""

    def learn(self, cls: type) -> Reader | None:
        """Find out how values of a class are read; done once for each class."""
        self._classes.append(cls)
        reader = self[id(cls)] = _reader(cls)
        return reader


def _reader(cls: type) -> Reader | None:
    numpy = sys.modules.get("numpy")
    if issubclass(cls, Tensor) or (numpy is not None and issubclass(cls, numpy.ndarray)):
        return None  # never isinstance: that would ask the object for its __class__
    if id(cls) in _ATOMS:
        return _ATOMS[id(cls)]
    if cls is Whole:
        return lambda value: (LIST, [(None, item) for item in value])
    if numpy is not None and issubclass(cls, numpy.generic) and _module_of(cls) == "numpy":
        return _reader_of_numpy(numpy, cls)
    if issubclass(cls, dict):
        return _read_fields_of_dict if cls is not dict and _is_dataclass(cls) else _read_dict
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
        _name_of(each) == "Image" and _module_of(each) == "PIL.Image" for each in type.__getattribute__(cls, "__mro__")
    ):
        return lambda value: _picture(value) or name
    return _constant(name)  # of all else only the type's name: the program's own __repr__ is never called


def _constant(text: str) -> Reader:
    """Says the same of every value."""

    def read(value: Any) -> str:
        return text

    read.__dict__["text"] = text
    return read


def _picture(value: Any) -> str:
    """``Image(RGB, 640×480)``, from what the object holds: a property of the program's own class is not asked."""
    held = object.__getattribute__(value, "__dict__")
    size, mode = held.get("_size"), held.get("_mode", held.get("mode"))
    if type(mode) is not str or type(size) is not tuple or [type(each) for each in size] != [int, int]:
        return ""
    return f"Image({mode}, {size[0]}×{size[1]})"[:LONGEST_TEXT]


def _reader_of_numpy(numpy: Any, cls: type) -> Reader:
    """Numpy's own scalars, spelt by numpy. A record, which may hold objects of the program, is not."""
    if issubclass(cls, str):
        return lambda value: _text(str(value))
    if issubclass(cls, bytes):
        return _bytes
    return _type_name if issubclass(cls, numpy.void) else lambda value: str(value)[:LONGEST_TEXT]


def _read_list(plain: Any, tag: str, value: Any) -> Any:
    """Lists and tuples, also the program's own classes of them: read as what they are, not as they say."""
    length = plain.__len__(value)
    if length > LONGEST_LIST and not issubclass(type(plain.__getitem__(value, 0)), Tensor):
        return f"<{_name_of(type(value))} of {length}>"
    return tag, [(None, item) for item in plain.__iter__(value)]


def _read_dict(value: Any) -> Any:
    if dict.__len__(value) > LONGEST_LIST:
        return f"<{_name_of(type(value))} of {dict.__len__(value)}>"
    return DICT, [(str(_ATOMS.get(id(type(key)), _type_name)(key)), item) for key, item in list(dict.items(value))]


def _read_fields_of_dict(value: Any) -> Any:
    """Classes that are dict and dataclass (transformers' ModelOutput): what is set, by name."""
    return FIELDS, [(key, item) for key, item in list(dict.items(value)) if type(key) is str]


def _is_dataclass(cls: type) -> bool:
    return any("__dataclass_fields__" in vars(each) for each in cls.__mro__)


def _field_names(cls: type) -> tuple[str, ...] | None:
    """Named tuples, torch's own result types (``torch.return_types.max``) and dataclasses have named fields."""
    if issubclass(cls, tuple):
        fields = vars(cls).get("_fields") or getattr(cls, "__match_args__", None)
        return fields if type(fields) is tuple else None
    return tuple(cls.__dataclass_fields__) if _is_dataclass(cls) else None  # type: ignore[attr-defined]


def _field_slots(cls: type, names: tuple[str, ...]) -> list[tuple[str, MemberDescriptorType]]:
    """The fields that lie in slots; found once for a class, which may have hundreds of attributes."""
    every = (item for each in cls.__mro__ for item in vars(each).items())
    return [(name, slot) for name, slot in every if type(slot) is MemberDescriptorType and name in names]


def _fields(value: Any, cls: type, names: tuple[str, ...], slots: list[tuple[str, MemberDescriptorType]]) -> Items:
    """Read without running the class's own code: tuple items, the instance's dictionary, or its slots."""
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
                pass  # never set
    return [(name, held[name]) for name in names if name in held]


def _text(value: Any) -> str:
    text = repr(value[:LONGEST_TEXT])
    return text if len(value) <= LONGEST_TEXT else text + "…"


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
"""By ``id``; these classes live for ever."""
