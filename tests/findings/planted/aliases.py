"""Copies that are none, results that nobody takes, numbers that lose their digits."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

X, Y = torch.randn(8, 4), torch.randint(0, 3, (8,))


def trained(keep):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best, state = float("inf"), None
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        if loss.item() < best:
            best, state = loss.item(), keep(model)
        optimizer.step()
    return model, state


def best_state_not_copied():
    model, state = trained(lambda model: model.state_dict())
    model.load_state_dict(state)  # finds: copied-onto-itself


def best_state_copied_fixed():
    model, state = trained(lambda model: copy.deepcopy(model.state_dict()))
    model.load_state_dict(state)


def best_state_cloned_lookalike():
    model, state = trained(lambda model: {name: each.clone() for name, each in model.state_dict().items()})
    model.load_state_dict(state)


def clamp_dropped():
    image = torch.randn(3, 8, 8)
    noisy = image + torch.randn_like(image)
    noisy.clamp(0, 1)  # finds: result-dropped
    print(noisy.mean().item())


def clamp_kept_fixed():
    image = torch.randn(3, 8, 8)
    noisy = image + torch.randn_like(image)
    noisy.clamp_(0, 1)
    print(noisy.mean().item())


class Forgets(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.a(x)
        F.relu(x)  # finds: result-dropped  [relu]
        return self.b(x)


def activation_dropped():  # [relu]
    model = Forgets()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    F.cross_entropy(model(X), Y).backward()
    optimizer.step()


def masked_fill_dropped():
    scores = torch.randn(4, 4)
    scores.masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf"))  # finds: result-dropped
    print(scores.softmax(-1).sum().item())


def squeeze_dropped():
    y = torch.randn(8, 1)
    y.squeeze(1)  # finds: result-dropped
    print((y * 2).shape)


def states_not_cloned():
    h = torch.zeros(4)
    states = []
    for step in range(4):
        h += step
        states.append(h)
    print(torch.stack(states).sum().item())  # finds: stack-of-one


def states_cloned_fixed():
    h = torch.zeros(4)
    states = []
    for step in range(4):
        h += step
        states.append(h.clone())
    print(torch.stack(states).sum().item())


def repeated_on_purpose_lookalike():
    row = torch.randn(4)
    print(torch.stack([row] * 4).sum().item())


def repeated_after_it_was_filled_lookalike():
    h = torch.zeros(4)
    h.fill_(1.0)
    h.mul_(0.5)
    print(torch.stack([h, h, h]).sum().item())
    rows = [h] * 3
    print(torch.stack(rows).sum().item())


def repeated_in_a_loop_lookalike():
    h = torch.zeros(4)
    for step in range(3):
        h += step
        print(torch.stack([h, h, h]).sum().item(), torch.stack([h] * 3).sum().item())


def states_with_a_gradient_lookalike():
    h = torch.zeros(4)
    states = []
    for _ in range(3):
        h.requires_grad_(False)
        states.append(h)
    print(torch.stack(states).sum().item())


def states_not_cloned_and_divided():
    h = torch.ones(4)
    states = []
    for _ in range(3):
        states.append(h)
        h.__itruediv__(2)
    print(torch.stack(states).sum().item())  # finds: stack-of-one


def rewards_truncated():
    rewards = torch.zeros(5, dtype=torch.long)
    for i in range(5):
        rewards[i] = 0.5  # finds: int-truncation
    print(rewards.sum().item())


def rewards_kept_fixed():
    rewards = torch.zeros(5)
    for i in range(5):
        rewards[i] = 0.5
    print(rewards.sum().item())


def predictions_truncated():
    out = torch.tensor([0, 0, 0])
    model = nn.Linear(4, 3)
    out[:] = model(X[0]).detach()  # finds: int-truncation
    print(out.sum().item())


def whole_numbers_lookalike():
    out = torch.zeros(3, dtype=torch.long)
    out[0] = 2.0
    out[1:] = torch.round(torch.randn(2))
    print(out.sum().item())


class ForgetsLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.relu, self.b = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)

    def forward(self, x):
        x = self.a(x)
        self.relu(x)  # finds: result-dropped  [layer]
        return self.b(x)


def layer_dropped():  # [layer]
    model = ForgetsLayer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    F.cross_entropy(model(X), Y).backward()
    optimizer.step()


def average_of_itself():
    model = nn.Linear(4, 3)
    average = model.state_dict()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        for name, value in model.state_dict().items():
            average[name].mul_(0.9).add_(value, alpha=0.1)  # finds: copied-onto-itself


def average_fixed():
    model = nn.Linear(4, 3)
    average = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        for name, value in model.state_dict().items():
            average[name].mul_(0.9).add_(value, alpha=0.1)


def data_scaled_again_and_again():
    data = torch.rand(16, 4) * 255
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        data /= 255  # finds: changes-the-data
        optimizer.zero_grad()
        F.cross_entropy(model(data), torch.zeros(16, dtype=torch.long)).backward()
        optimizer.step()


def data_scaled_once_fixed():
    data = torch.rand(16, 4) * 255
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data /= 255
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(model(data + 0.1 * torch.randn_like(data)), torch.zeros(16, dtype=torch.long)).backward()
        optimizer.step()


def sampled_in_place_lookalike():
    model = nn.Linear(4, 4)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(4):
            noise = model(x)
            x -= 0.1 * noise
            x += 0.01 * torch.randn_like(x)
