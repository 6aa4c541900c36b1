"""Where does the shape change? Every step of plain tensor code, no module needed."""

import torch

import torchglass as tg


def to_patches(image, size):
    """Cut images into squares, each a row of pixels."""
    batch, channels, height, width = image.shape
    grid = image.reshape(batch, channels, height // size, size, width // size, size)
    squares = grid.permute(0, 2, 4, 3, 5, 1)
    return squares.flatten(3).flatten(1, 2)


with tg.record() as trace:
    patches = to_patches(torch.zeros(2, 3, 8, 8), size=4)

for event in trace.events(kind="function"):
    if event.inputs and event.inputs[0].shape != event.outputs[0].shape:
        print(event.line, event.code, event.inputs[0].shape, "→", event.outputs[0].shape)
