"""A module called from a function, and a helper in a file beside it."""

import torch
from beside import doubled


def main() -> torch.Tensor:
    layer = torch.nn.Linear(3, 2)
    return layer(doubled(torch.ones(4, 3)))


if __name__ == "__main__":
    print(main().shape)
