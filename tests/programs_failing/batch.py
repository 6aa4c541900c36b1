"""A last batch that is smaller."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(50, 6), torch.randn(50, 3))
rnn = nn.GRUCell(6, 3)
opt = torch.optim.SGD(rnn.parameters(), 0.1)
state = torch.zeros(16, 3)  # MISTAKE: the last batch has 2
for x, y in DataLoader(data, batch_size=16):
    state = rnn(x, state.detach())
    loss = (state - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
