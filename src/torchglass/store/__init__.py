"""How a trace is kept: a folder with the events as SQLite, tensors as safetensors, and the sources."""

from torchglass.events.schema import SavedTensor
from torchglass.store.bundle import BundleFull
from torchglass.store.launch import in_job, rank
from torchglass.store.loading import Loaded, load
from torchglass.store.part import Part, open_part
from torchglass.store.repairing import repair
from torchglass.store.saving import save
from torchglass.store.shards import new_tensor
from torchglass.store.tensors import Content, content_in, saved_rows

__all__ = [
    "BundleFull",
    "Content",
    "Loaded",
    "Part",
    "SavedTensor",
    "content_in",
    "in_job",
    "load",
    "new_tensor",
    "open_part",
    "rank",
    "repair",
    "save",
    "saved_rows",
]
