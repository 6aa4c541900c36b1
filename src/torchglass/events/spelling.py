"""How things are written in all texts of a trace: a tensor as ``f32[8, 3]``, nothing that a terminal obeys."""

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
    """``f32[8, 3]``, ``u8[3] numpy``; a dtype without a short name keeps its own; ``?`` where there is no size."""
    sizes = "?" if shape is None else ", ".join(map(size_text, shape))
    return f"{DTYPES.get(dtype, dtype)}[{sizes}]" + (" numpy" if kind == "array" else "")


def size_text(size: int) -> str:
    """``8``; ``?`` for a size that is none."""
    return str(size) if size >= 0 else "?"


LONGEST_INT = 512
"""In bits. Python itself refuses to spell ints of more than some thousand digits."""


def int_word(value: int) -> str:
    """An int as it is written; of a very long one its length."""
    bits = value.bit_length()
    return str(value) if bits <= LONGEST_INT else f"an int of {bits} bits"


def clean(text: str) -> str:
    r"""Text from the program, made safe to print: ``\x1b``, newlines, bidi overrides … are spelt out."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    named = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    if named:
        return named
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
