"""Values that leave torch for numpy and Python, and come back."""

import numpy as np
import torch


def main():
    torch.manual_seed(0)
    x = torch.randn(3, 4)
    array = x.numpy()
    array += 1
    back = torch.from_numpy(array * 2)
    shared = torch.from_numpy(array)
    mixed = np.sqrt(np.abs(array)) + np.asarray(back)
    if x.sum() > -1000:
        numbers = x[0].tolist()
    scalar = x.mean().item()
    wrapped = np.exp(np.asarray(x[0]))
    return (
        x,
        back,
        shared,
        torch.as_tensor(mixed),
        torch.tensor(numbers),
        torch.tensor(scalar),
        torch.as_tensor(wrapped),
    )
