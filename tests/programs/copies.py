"""deepcopy, torch.save and pickle of tensors and modules: what comes back is what went in."""

import copy
import io
import pickle

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    x = torch.randn(2, 3)
    y = layer(x).detach()
    twin = copy.deepcopy(layer)
    same = copy.deepcopy(y)
    file = io.BytesIO()
    torch.save({"x": x, "y": y, "state": layer.state_dict()}, file)
    size = len(file.getvalue())
    file.seek(0)
    back = torch.load(file, weights_only=True)
    pickled = pickle.loads(pickle.dumps(y))
    return twin(x), same, back, pickled, torch.tensor(size), torch.tensor(len(vars(y)))
