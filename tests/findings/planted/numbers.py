"""What only the numbers show: these programs are recorded with values="stats"."""

import torch
import torch.nn.functional as F
from torch import nn

X, Y = torch.randn(16, 4), torch.randn(16, 2)


def train(model, x=X, y=Y, lr=0.01, steps=8):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()  # finds: not-finite  [nan]
        optimizer.step()  # finds: no-update  [still]


class Net(nn.Module):
    def __init__(self, activation=F.relu):
        super().__init__()
        self.body, self.head, self.activation = nn.Linear(4, 8), nn.Linear(8, 2), activation

    def forward(self, x):
        h = self.body(x)
        return self.head(self.activation(h))  # finds: dead-units  [dead]


def with_bias(number, activation=F.relu):
    model = Net(activation)
    nn.init.constant_(model.body.bias, number)
    return model


def dead_relu():  # [dead]
    train(with_bias(-1000.0))


def dead_relu_fixed():
    train(with_bias(-0.1))


class Flat(Net):
    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))  # finds: saturated  [flat]


def saturated_tanh():  # [flat]
    model = Flat()
    nn.init.constant_(model.body.bias, 30.0)
    train(model)


def saturated_tanh_fixed():
    train(Flat())


def sharp_sigmoid_lookalike():
    model = Net(lambda h: torch.sigmoid(h * 10))
    train(model)


class Clipped(Net):
    def forward(self, x):
        h = self.body(x)  # finds: zero-gradient  [clipped]
        return self.head(F.relu(h)).clamp(50, 100)


def always_clipped():  # [clipped]
    train(Clipped())


class Wide(Net):
    def forward(self, x):
        return self.head(F.relu(self.body(x))).clamp(-50, 100)


def never_clipped_fixed():
    train(Wide())


def learning_rate_of_zero():  # [still]
    train(Net(), lr=0.0)


def learning_rate_fixed():
    train(Net(), lr=0.001)


def warm_up_lookalike():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 2, 1))
    for _ in range(4):
        optimizer.zero_grad()
        F.mse_loss(model(X), Y).backward()
        optimizer.step()
        warm_up.step()


def loss_is_nan():  # [nan]
    train(Net(), y=(Y - 100).log())


def loss_is_finite_fixed():
    train(Net(), y=(Y.abs() + 1).log())


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

    def forward(self, x):
        h = self.conv(x)  # finds: input-scale  [bytes]
        return self.head(torch.tanh(h).mean((2, 3)))


def pictures():
    return torch.randint(0, 256, (16, 3, 8, 8), dtype=torch.uint8)


def bytes_into_a_layer():  # [bytes]
    train(Convolution(), pictures().float())


def bytes_into_a_layer_fixed():
    train(Convolution(), pictures().float() / 255)


def fractions_made_whole():
    scores = torch.sigmoid(torch.randn(16, 2)).clamp(0.01, 0.99)
    y = scores.long().float()  # finds: int-truncation
    train(Net(), y=y)


def fractions_kept_fixed():
    scores = torch.sigmoid(torch.randn(16, 2)).clamp(0.01, 0.99)
    train(Net(), y=scores.double().float() + (scores > 0.5).long())


def bias_before_a_batch_norm_lookalike():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    model[0].bias.data.add_(1.0)
    train(model, steps=6)


class Bounded(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.body, self.last = nn.Linear(4, 2), last

    def forward(self, x):
        return self.last(self.body(x))


def never_negative():  # [relu]
    reach(Bounded(nn.ReLU()), Y)


def negative_as_well_fixed():
    reach(Bounded(nn.Identity()), Y)


def sigmoid_for_minus_one_to_one():  # [relu]
    reach(Bounded(nn.Sigmoid()), Y.clamp(-1, 1))


def tanh_for_minus_one_to_one_fixed():
    reach(Bounded(nn.Tanh()), Y.clamp(-1, 1))


def smoothed_labels_lookalike():
    reach(Bounded(nn.Sigmoid()), torch.where(Y > 0, 1.1, 0.0))


def several_tags_with_softmax():  # [relu]
    reach(Bounded(nn.Softmax(dim=1)), torch.ones(16, 2))


def one_tag_with_softmax_lookalike():
    reach(Bounded(nn.Softmax(dim=1)), F.one_hot(torch.arange(16) % 2, 2).float())


def reach(model, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(X), y).backward()  # finds: out-of-reach  [relu]
        optimizer.step()
