"""Spell what the texts of all traces contain: a tensor as ``f32[8, 3]``, and control characters as escapes."""

from __future__ import annotations

DTYPES = {
    "bfloat16": "bf16", "float64": "f64", "float32": "f32", "float16": "f16",
    "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0fnu",
    "complex32": "c32", "complex64": "c64", "complex128": "c128",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "bool": "b8",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip


def tensor_text(dtype: str, shape: tuple[int, ...] | None, kind: str = "tensor") -> str:
    """Return ``f32[8, 3]`` or ``u8[3] numpy``. A dtype without a short name keeps its own, an unknown size is ``?``."""
    sizes = "?"
    if shape is not None:
        sizes = ", ".join(map(size_text, shape))
    text = f"{DTYPES.get(dtype, dtype)}[{sizes}]"
    if kind == "array":
        return f"{text} numpy"
    return text


def size_text(size: int) -> str:
    """Return ``8``, or ``?`` for an unknown size."""
    if size >= 0:
        return str(size)
    return "?"


MAX_INT_BITS = 512
"""Python itself refuses to spell ints of more than some thousand digits."""


def int_word(value: int) -> str:
    """Return an int as text, or only its length if it is very long."""
    bits = value.bit_length()
    if bits <= MAX_INT_BITS:
        return str(value)
    return f"an int of {bits} bits"


def clean(text: str) -> str:
    r"""Make text from the program safe to print: ``\x1b``, newlines, bidi overrides … are spelt out."""
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    named = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    if named:
        return named
    if code < 256:
        return f"\\x{code:02x}"
    if code < 65536:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"
