"""Reshapes in the manner of einops: patches out of an image and back, heads split and merged."""

import torch


def to_patches(image, size):
    batch, channels, height, width = image.shape
    rows, columns = height // size, width // size
    x = image.reshape(batch, channels, rows, size, columns, size)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(batch, rows * columns, size * size * channels)


def from_patches(patches, size, height, width):
    batch, _, flat = patches.shape
    x = patches.unflatten(1, (height // size, width // size))
    x = x.unflatten(-1, (size, size, flat // size**2))
    return x.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


def main():
    torch.manual_seed(0)
    image = torch.randn(2, 3, 8, 8)
    patches = to_patches(image, 4)
    again = from_patches(patches, 4, 8, 8)
    tiled = patches[:, :1].expand(-1, 3, -1).repeat(1, 1, 2).movedim(1, 0).swapaxes(0, 1).squeeze()
    return patches, again, tiled, torch.stack(image.unbind(1), dim=-1)
