"""Training loops: the optimizers of torch against steps written by hand, and the mistakes of each."""

import math

import torch
import torch.nn.functional as F
from torch import nn

IN, WIDE, CLASSES, BATCH, STEPS = 12, 24, 9, 8, 3


def data() -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(21)
    batches = []
    for _ in range(STEPS):
        targets = torch.randint(0, CLASSES, (BATCH,))
        targets[1] = -100
        batches.append((torch.randn(BATCH, IN), targets))
    return batches


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(22)
        self.first, self.norm = nn.Linear(IN, WIDE), nn.LayerNorm(WIDE)
        self.second = nn.Linear(WIDE, CLASSES)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.gelu(self.norm(self.first(x))))  # wrong: activation detached


OPTIMIZERS = {
    "sgd": lambda p, **more: torch.optim.SGD(p, **{"lr": 0.1, **more}),
    "momentum": lambda p, **more: torch.optim.SGD(
        p, **{"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05, "nesterov": False, **more}
    ),
    "adam": lambda p, **more: torch.optim.Adam(p, **{"lr": 1e-2, "weight_decay": 0.1, **more}),
    "adamw": lambda p, **more: torch.optim.AdamW(p, **{"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-6, **more}),
    "rmsprop": lambda p, **more: torch.optim.RMSprop(p, **{"lr": 1e-3, **more}),
    "adagrad": lambda p, **more: torch.optim.Adagrad(p, **{"lr": 1e-2, **more}),
}


def train_a(which: str, clip: bool = True, schedule: bool = False) -> list:
    """Side A; returns the parameters, by which the benchmark checks what it claims."""
    model = Net()
    optimizer = OPTIMIZERS[which](model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)) if schedule else None
    for inputs, targets in data():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets, label_smoothing=0.1)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return list(model.parameters())


class Classifier(nn.Module):
    """The same network, differently written."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        made = Net()
        self.w1, self.b1 = made.first.weight, made.first.bias
        self.g, self.o = made.norm.weight, made.norm.bias
        self.w2, self.b2 = made.second.weight, made.second.bias
        self.wrong = wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.addmm(self.b1, x, self.w1.t())
        h = F.layer_norm(h, (WIDE,), self.g, self.o)
        if self.wrong == "activation detached":
            return F.linear(F.gelu(h.detach()), self.w2, self.b2)  # wrong: activation detached
        return F.linear(F.gelu(h), self.w2, self.b2)


CHANGED = {
    "nesterov": {"nesterov": True}, "dampening": {"dampening": 0.1}, "weight decay missing": {"weight_decay": 0.0},
    "weight decay": {"weight_decay": 0.2}, "betas": {"betas": (0.9, 0.99)}, "epsilon": {"eps": 1e-3},
    "learning rate": {"lr": 0.02}, "amsgrad": {"amsgrad": True}, "centered": {"centered": True},
    "alpha": {"alpha": 0.9}, "+foreach": {"foreach": True}, "+one by one": {"foreach": False}, "+fused": {"fused": True},
}  # fmt: skip


def train_b(which: str, wrong: str = "", clip: bool = True, schedule: bool = False) -> list:
    """Side B: torch's optimizers, and another network."""
    net = Classifier(wrong)
    parameters = [net.w1, net.b1, net.g, net.o, net.w2, net.b2]
    name = {"adam for adamw": "adam", "adamw for adam": "adamw"}.get(wrong, which)
    opt = OPTIMIZERS[name](parameters, **CHANGED.get(wrong, {}))
    for number, (x, y) in enumerate(data()):
        out = net(x)
        smooth = 0.0 if wrong == "label smoothing missing" else 0.1
        if wrong == "loss summed":
            loss = F.cross_entropy(out, y, label_smoothing=0.1, reduction="sum")  # wrong: loss summed
        elif wrong == "padding counted":
            y = y.clamp(min=0)  # wrong: padding counted
            loss = F.cross_entropy(out, y, label_smoothing=0.1)  # wrong: padding counted
        elif wrong == "loss divided by all":
            loss = F.cross_entropy(out, y, label_smoothing=0.1, reduction="sum") / len(y)  # wrong: loss divided by all
        elif wrong == "+loss by hand":
            lp = F.log_softmax(out, -1)
            keep = y != -100
            nll = -lp[keep].gather(1, y[keep, None]).squeeze(1)
            loss = (0.9 * nll - 0.1 * lp[keep].mean(-1)).mean()
        else:
            loss = F.cross_entropy(out, y, label_smoothing=smooth)  # wrong: label smoothing missing
        if wrong != "gradients not zeroed":
            opt.zero_grad(set_to_none=wrong != "+zeroed in place")
        loss.backward()  # wrong: gradients not zeroed
        if clip and wrong != "clipping missing":
            if wrong == "clipped by value":
                nn.utils.clip_grad_value_(parameters, 0.5)  # wrong: clipped by value
            elif wrong == "clipped one by one":
                for p in parameters:
                    nn.utils.clip_grad_norm_([p], 0.5)  # wrong: clipped one by one
            elif wrong == "norm of the clip":
                nn.utils.clip_grad_norm_(parameters, 1.0 if number else 0.5)  # wrong: norm of the clip
            else:
                nn.utils.clip_grad_norm_(parameters, 0.5)
        if schedule:
            late = number + 1 if wrong == "schedule off by one" else number
            for group in opt.param_groups:
                group["lr"] = (0.1 if which != "adamw" else 1e-2) / (1 + late)
        opt.step()  # wrong: nesterov, dampening, weight decay missing, weight decay, betas, epsilon, learning rate, amsgrad, centered, alpha, adam for adamw, adamw for adam, schedule off by one, clipping missing
    return parameters


def by_hand(which: str, wrong: str = "") -> list:
    """Side B: plain tensors, gradients by autograd.grad, the update written out."""
    made = Net()
    p = [made.first.weight, made.first.bias, made.norm.weight, made.norm.bias, made.second.weight, made.second.bias]
    p = [each.detach().clone().requires_grad_() for each in p]
    m = [torch.zeros_like(each) for each in p]
    v = [torch.zeros_like(each) for each in p]
    for step, (x, y) in enumerate(data(), 1):
        h = F.gelu(F.layer_norm(F.linear(x, p[0], p[1]), (WIDE,), p[2], p[3]))
        loss = F.cross_entropy(F.linear(h, p[4], p[5]), y, label_smoothing=0.1)
        grads = torch.autograd.grad(loss, p)
        total = torch.stack([g.square().sum() for g in grads]).sum().sqrt()
        factor = (0.5 / (total + 1e-6)).clamp(max=1.0)
        grads = [g * factor for g in grads]
        with torch.no_grad():
            for i, (each, g) in enumerate(zip(p, grads, strict=True)):
                if which == "sgd":
                    each -= 0.1 * g
                elif which == "momentum":
                    if wrong != "decay forgotten":
                        g = g + 0.05 * each
                    m[i] = g if step == 1 else 0.9 * m[i] + g  # wrong: decay forgotten
                    each.sub_(0.1 * m[i])  # wrong: decay forgotten
                else:
                    each.mul_(1 - 1e-2 * 0.1)
                    m[i] = 0.9 * m[i] + 0.1 * g
                    v[i] = 0.999 * v[i] + 0.001 * g * g
                    if wrong == "no bias correction":
                        each.sub_(1e-2 * m[i] / (v[i].sqrt() + 1e-6))  # wrong: no bias correction
                    elif wrong == "eps in the root":
                        vh = v[i] / (1 - 0.999**step)
                        each.sub_(1e-2 * m[i] / (1 - 0.9**step) / (vh + 1e-6).sqrt())  # wrong: eps in the root
                    else:
                        denominator = v[i].sqrt() / math.sqrt(1 - 0.999**step) + 1e-6
                        each.sub_(1e-2 / (1 - 0.9**step) * m[i] / denominator)
    return p


def accumulated(wrong: str) -> list:
    """Side B: two halves of each batch; the loss of each is a share of the whole."""
    net = Classifier("")
    parameters = [net.w1, net.b1, net.g, net.o, net.w2, net.b2]
    opt = OPTIMIZERS["sgd"](parameters)
    for x, y in data():
        opt.zero_grad()
        count = (y != -100).sum()
        for part, goal in zip(x.split(BATCH // 2), y.split(BATCH // 2), strict=True):
            loss = F.cross_entropy(net(part), goal, label_smoothing=0.1, reduction="sum")
            if wrong == "accumulated without dividing":
                loss = loss / (goal != -100).sum()  # wrong: accumulated without dividing
            else:
                loss = loss / count
            loss.backward()  # wrong: accumulated without dividing
        opt.step()
    return parameters
