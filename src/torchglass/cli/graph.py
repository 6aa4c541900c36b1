"""Draw a call trace, the text file of CallTracer.save_trace, as a top-down graph.

Repeated layers are one box (layers x 12), and the last part of each path is left out, unless told
otherwise. The suffix of --out chooses the format: png, svg or pdf, or dot for Graphviz's own text,
which needs no program `dot`.

examples:
  torchglass graph forward.txt                          writes forward.png
  torchglass graph forward.txt --out net.svg --no-prune-leaves
  torchglass graph forward.txt --out net.dot --squash-name --save-json net.json
"""

from __future__ import annotations

from torchglass.compat.torchspy.trace_to_graph import configure, run

__all__ = ["configure", "run"]
