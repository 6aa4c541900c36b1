"""How did a variable change on its way from numpy to the model? Each change at its line, below the calls."""

import logging
import os
import sys

import numpy as np
import torch

from torchglass.compat.ttracker import auto_diff, logger, var_tracker

# The lines go through an ordinary logger: here to the console, without the times, which differ from run to run.
os.environ["TORCHGLASS_CONSOLE"] = "0"
console = logging.StreamHandler(sys.stdout)
console.addFilter(lambda record: "└─ time" not in record.getMessage())
logger.addHandler(console)


class Clips:
    """A data set of short clips."""

    @var_tracker("video")
    def __getitem__(self, index):
        """One clip, ready for the model."""
        video = np.full((73, 64, 96, 3), index, dtype=np.uint8)
        video = torch.from_numpy(video)
        video = video.permute(0, 3, 1, 2)
        return self.scaled(video)

    @auto_diff
    def scaled(self, frames):
        """Frames as numbers between -1 and 1."""
        video = frames.float()
        video /= 127.5
        return video - 1


Clips()[5]
