"""set_default_device and a device block: torch puts a mode of its own on the stack."""

import torch


def main():
    torch.manual_seed(0)
    with torch.device("cpu"):
        a = torch.ones(2, 2)
    torch.set_default_device("meta")
    try:
        ghost = torch.zeros(3, 3) + 1
    finally:
        torch.set_default_device(None)
    return a, torch.tensor(ghost.shape), torch.nn.functional.softmax(torch.zeros(2), dim=0)
