"""In which order are modules called, and how do they nest? CallTracer notes it, trace_graph draws it."""

import tempfile

import torch
from torch import nn

from torchglass.compat.torchspy import CallTracer, trace_graph


class Block(nn.Module):
    """A part that is repeated."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


model = nn.Sequential()
model.add_module("embed", nn.Embedding(50, 8))
model.add_module("blocks", nn.Sequential(Block(8), Block(8), Block(8)))
model.add_module("head", nn.Linear(8, 50))

with tempfile.TemporaryDirectory() as folder:
    tracer = CallTracer(folder)
    tracer.register_hooks(model, exclude_names=["root"])
    model(torch.tensor([[1, 2, 3]]))
    tracer.remove_hooks()
    path = tracer.save_trace("forward.txt")  # `torchglass graph forward.txt` draws it
    tree = trace_graph.build_tree(trace_graph.parse_trace(path))

print(*tracer.call_trace[:7], "…", sep="\n")
print(f"{len(tracer.call_trace)} calls\n")
print(trace_graph.construct_graph(tree, prune_leaves_flag=False).source)
