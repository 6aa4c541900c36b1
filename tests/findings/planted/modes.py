"""Train and eval mode, and dropout that knows neither."""

import torch
import torch.nn.functional as F
from torch import nn

X, Y = torch.randn(8, 4), torch.randint(0, 3, (8,))


class Net(nn.Module):
    def __init__(self, functional=None):
        super().__init__()
        self.body, self.norm, self.drop, self.head = (
            nn.Linear(4, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.2),
            nn.Linear(8, 3),
        )
        self.functional = functional

    def forward(self, x):
        h = self.drop(F.relu(self.norm(self.body(x))))
        if self.functional is not None:
            h = self.functional(self, h)
        return self.head(h)


def epoch(model, optimizer):
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()  # finds: eval-while-training  [eval]
        optimizer.step()


def eval_left_on():  # [eval]
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        epoch(model, optimizer)
        model.eval()
        with torch.no_grad():
            print((model(X).argmax(1) == Y).float().mean().item())


def eval_never_off():  # [eval]
    model = Net().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch(model, optimizer)


def eval_switched_back_fixed():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model.train()
        epoch(model, optimizer)
        model.eval()
        with torch.no_grad():
            print((model(X).argmax(1) == Y).float().mean().item())


def frozen_batch_norm_lookalike():
    model = Net()
    model.norm.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch(model, optimizer)


def evaluated_in_train_mode():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        epoch(model, optimizer)
        with torch.no_grad():
            predicted = model(X).argmax(1)  # finds: train-while-evaluating
        print((predicted == Y).float().mean().item())


def validation_loss_in_train_mode():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        epoch(model, optimizer)
        with torch.no_grad():
            out = model(X)  # finds: train-while-evaluating
            print(F.cross_entropy(out, Y).item())


def monte_carlo_dropout_lookalike():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch(model, optimizer)
    with torch.no_grad():
        samples = torch.stack([model(X).softmax(-1) for _ in range(5)])
    print(samples.var(0).max().item(), (samples.mean(0).argmax(-1) == Y).sum().item())


def functional_dropout_always_on():
    model = Net(lambda self, h: F.dropout(h, 0.3))  # finds: dropout-in-evaluation
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch(model, optimizer)
    model.eval()
    with torch.no_grad():
        print((model(X).argmax(1) == Y).float().mean().item())


def functional_dropout_fixed():
    model = Net(lambda self, h: F.dropout(h, 0.3, training=self.training))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch(model, optimizer)
    model.eval()
    with torch.no_grad():
        print((model(X).argmax(1) == Y).float().mean().item())


class SelfAttention(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.qkv, self.head, self.tied = nn.Linear(4, 12), nn.Linear(4, 3), tied

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        rate = 0.1 if self.training or not self.tied else 0.0
        h = F.scaled_dot_product_attention(q, k, v, dropout_p=rate)  # finds: dropout-in-evaluation  [attention]
        return self.head(h.mean(1))


def attention_drops_always():  # [attention]
    model = SelfAttention(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 5, 4)
    F.cross_entropy(model(x), Y).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        print((model(x).argmax(1) == Y).float().mean().item())


def attention_drops_in_training_fixed():
    model = SelfAttention(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 5, 4)
    F.cross_entropy(model(x), Y).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        print((model(x).argmax(1) == Y).float().mean().item())
