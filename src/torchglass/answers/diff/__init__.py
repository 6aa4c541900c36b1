"""Where two runs, of one program or of two that share only their numbers, first really differ."""

from torchglass.answers.diff.compare import compare
from torchglass.answers.diff.result import AlignedValue, Diff, DifferingRegion, RunPlace, diff_lines

__all__ = ["AlignedValue", "Diff", "DifferingRegion", "RunPlace", "compare", "diff_lines"]
