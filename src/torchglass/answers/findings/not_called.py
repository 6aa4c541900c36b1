"""A method is named and not called: `model.eval` without `()` does nothing.

Python evaluates the name, finds the method, and forgets it. There is no message.

    model.eval                                           # wrong: model.eval()
    optimizer.zero_grad                                  # wrong: optimizer.zero_grad()
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion
from torchglass.answers.findings.texts import source_files, statements_run

METHODS = {
    "eval": "the mode stays as it is",
    "train": "the mode stays as it is",
    "zero_grad": "gradients are not cleared",
    "step": "nothing is updated",
    "backward": "no gradient is computed",
    "requires_grad_": "nothing is frozen",
}
LINE = re.compile(rf"^\s*[^#\n]*\.({'|'.join(METHODS)})[ \t]*(#.*)?$", re.MULTILINE)


def find(facts: Facts) -> Iterator[Suspicion]:
    for source in source_files(facts, LINE):
        for node in statements_run(source):
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Attribute):
                continue
            effect = METHODS.get(node.value.attr)
            if effect is None:
                continue
            code = ast.unparse(node.value)
            yield Suspicion(
                severity=BUG,
                event=source.event_near(node),
                place=source.place(node),
                text=f"{code} is not called: {effect}",
                fix=f"{code}()",
            )
