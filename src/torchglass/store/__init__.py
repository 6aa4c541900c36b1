"""How a trace is kept: a folder with the events as SQLite, tensors as safetensors, and the sources."""

from torchglass.store.bundle import BundleFull
from torchglass.store.loading import Loaded, load, load_part
from torchglass.store.progress import watched
from torchglass.store.reader import SavedTensor
from torchglass.store.repairing import repair
from torchglass.store.saving import save
from torchglass.store.shards import Belongs
from torchglass.store.tensors import Content
from torchglass.store.writer import Closing, Writer, open_writer

__all__ = [
    "Belongs",
    "BundleFull",
    "Closing",
    "Content",
    "Loaded",
    "SavedTensor",
    "Writer",
    "load",
    "load_part",
    "open_writer",
    "repair",
    "save",
    "watched",
]
