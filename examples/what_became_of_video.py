"""What became of `video`? The life of a variable, from a numpy reader to a torch model."""

import numpy as np
import torch
from torch import nn

import torchglass as tg


class Encoder(nn.Module):
    """Frames to features."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(48, 8)
        self.cache = None

    def forward(self, video):
        h = torch.relu(self.fc(video.flatten(1)))
        self.cache = h.mean(0)
        return h


def load(index):
    """A clip of six frames, as a reader gives it."""
    video = np.zeros((6, 4, 4, 3), dtype=np.uint8)
    video[index] = 255
    video = torch.from_numpy(video)
    video = video.permute(0, 3, 1, 2)
    return video.float() / 255


encoder = Encoder()
with tg.record(variables=["video", "self.cache", "h"]) as trace:
    for index in range(3):
        features = encoder(load(index))

tg.show(trace, "variables")
print()
tg.show(trace, "variables", names="video", order="time")
