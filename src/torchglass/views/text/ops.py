"""An op as text, in the grammar of torch-code-tracing: ``addmm(f32[96], f32[14, 32], f32[32, 96]) -> f32[14, 96]``."""

from __future__ import annotations

import re
from functools import lru_cache

from torchglass.views.text.cells import split_arguments
from torchglass.views.text.words import one_line

_KEYWORD_TEXT = re.compile(r"^([A-Za-z_]\w*=)'([^'\\]*)'$")


def op_name(name: str) -> str:
    """``mul.Tensor``; other namespaces than aten stay."""
    return name.removeprefix("aten::")


@lru_cache(maxsize=8192)
def op_words(args: str, result: str) -> tuple[str, str]:
    """Arguments and result of an op, less an oddity of the original: tensors in lists have no quotes."""
    parts = [_KEYWORD_TEXT.sub(r"\1\2", one_line(part)) for part in split_arguments(args)]
    several = f"({result[1:-1]})" if result.startswith("[") else result
    return ", ".join(parts), one_line(several)
