"""Training written anew: accumulation by tokens, optimizers, distillation, averages, preferences."""

import math

import torch
import torch.nn.functional as F
from generators import noise
from serving import ids, seeded
from torch import nn

# ---------------------------------------------------------------- causal language model, trainer-like: accumulation by tokens


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16)
        self.mix = nn.Linear(16, 16)
        self.n = nn.LayerNorm(16)
        self.head = nn.Linear(16, 30, bias=False)
        seeded(201, self)

    def forward(self, t):
        x = self.emb(t)
        x = x + torch.tanh(self.mix(x.cumsum(1) / torch.arange(1, t.shape[1] + 1)[:, None]))
        return self.head(self.n(x))


def _batches():
    t = ids(21, 30, 4, 4, 9)
    labels = t.clone()
    labels[:, 0, 5:] = -100
    labels[:, 2, 2:] = -100
    labels[1, 3, 7:] = -100
    return t, labels


def trainer_a():
    model = Tiny().train()
    opt = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1, betas=(0.9, 0.95))
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1, (s + 1) / 2) * 0.5 * (1 + math.cos(math.pi * s / 4))
    )  # wrong: schedule one step late
    t, labels = _batches()
    losses = []
    for step in range(2):
        opt.zero_grad()
        group = range(2 * step, 2 * step + 2)
        count = sum((labels[i][:, 1:] != -100).sum() for i in group)
        for i in group:
            logits = model(t[i])
            loss = (
                F.cross_entropy(logits[:, :-1].reshape(-1, 30), labels[i][:, 1:].reshape(-1), reduction="sum") / count
            )  # wrong: mean of means, not shifted, padding learnt
            loss.backward()
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # wrong: clipped before the last backward, clipping missing
        opt.step()
        sched.step()
    return [*losses, *(p.detach() for p in model.parameters())]


def trainer_b(wrong):
    model = Tiny().train()
    w = dict(model.named_parameters())
    decayed = [p for n, p in w.items() if p.dim() > 1] if wrong == "no decay of biases" else list(w.values())
    others = [p for n, p in w.items() if p.dim() < 2] if wrong == "no decay of biases" else []
    groups = [{"params": decayed, "weight_decay": 0.1}] + ([{"params": others, "weight_decay": 0.0}] if others else [])
    betas = (0.9, 0.999) if wrong == "betas of the default" else (0.9, 0.95)
    make = torch.optim.Adam if wrong == "decay in the gradient" else torch.optim.AdamW
    opt = make(groups, lr=0.01, betas=betas, foreach=wrong != "+one by one")
    t, labels = _batches()
    losses = []
    for step in range(2):
        at = step - 1 if wrong == "schedule one step late" else step
        at = max(at, 0)
        for g in opt.param_groups:
            g["lr"] = (
                0.01 * min(1.0, (at + 1) / 2) * 0.5 * (1.0 + math.cos(math.pi * at / 4))
            )  # wrong: schedule one step late
        micro = [(t[2 * step + j], labels[2 * step + j]) for j in range(2)]
        shifted = [y[:, 1:] for _, y in micro]
        total = sum(int((y >= 0).sum()) for y in shifted)
        for x, y in micro:
            z = model(x)
            target = F.pad(y, (0, 1), value=-100)[:, 1:]
            if wrong == "not shifted":
                target = y  # wrong: not shifted
            if wrong == "padding learnt":
                target = target.clamp(min=0)  # wrong: padding learnt
            if wrong == "mean of means":
                loss = F.cross_entropy(z.view(-1, 30), target.flatten()) / 2  # wrong: mean of means
            elif wrong == "+loss by hand":
                picked = z.log_softmax(-1).gather(-1, target.clamp(min=0)[..., None]).squeeze(-1)
                loss = -(picked * (target >= 0)).sum() / total
            else:
                loss = (
                    F.cross_entropy(z.transpose(1, 2), target, reduction="none").sum() / total
                )  # wrong: not shifted, padding learnt
            loss.backward()
            losses.append(loss.detach())
            if wrong == "clipped before the last backward" and x is micro[0][0]:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # wrong: clipped before the last backward
        if wrong not in ("clipped before the last backward", "clipping missing"):
            norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in w.values()]))
            by = torch.clamp(0.5 / (norm + 1e-6), max=1.0)
            for p in w.values():
                p.grad.mul_(by)
        opt.step()  # wrong: no decay of biases, betas of the default, decay in the gradient, clipping missing, schedule one step late
        if wrong == "gradients kept":
            pass
        else:
            opt.zero_grad(set_to_none=wrong != "+zeroed")
    return [*losses, *(p.detach() for p in w.values())]


TRAINER = [
    "",
    "+one by one",
    "+loss by hand",
    "+zeroed",
    "mean of means",
    "not shifted",
    "padding learnt",
    "clipped before the last backward",
    "clipping missing",
    "schedule one step late",
    "no decay of biases",
    "betas of the default",
    "decay in the gradient",
]


# ---------------------------------------------------------------- optimizers written anew


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 12), nn.Linear(12, 4)
        seeded(211, self)

    def forward(self, x):
        return self.b(F.silu(self.a(x)))


def optim_a(name):
    def run():
        model = Net()
        make = {
            "nadam": lambda p: torch.optim.NAdam(p, lr=0.02, weight_decay=0.01),
            "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
            "adam": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.99), eps=1e-4, amsgrad=True),
            "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, eps=1e-3),
            "adamax": lambda p: torch.optim.Adamax(p, lr=0.02),
        }[name]
        opt = make(model.parameters())
        for step in range(3):
            loss = F.mse_loss(model(noise(30 + step, 6, 8)), noise(40 + step, 6, 4))
            opt.zero_grad()
            loss.backward()
            opt.step()  # wrong: eps inside the root, momentum of the first step, decay after momentum, maximum of the corrected, buffer of the gradient
        return [p.detach() for p in model.parameters()]

    return run


def optim_b(name, wrong):
    def run():
        w = {k: v.detach().clone().requires_grad_() for k, v in Net().named_parameters()}
        state = {k: {} for k in w}
        for step in range(1, 4):
            x, y = noise(29 + step, 6, 8), noise(39 + step, 6, 4)
            h = x @ w["a.weight"].T + w["a.bias"]
            out = (h * torch.sigmoid(h)) @ w["b.weight"].T + w["b.bias"]
            loss = (out - y).square().mean()
            grads = torch.autograd.grad(loss, list(w.values()))
            with torch.no_grad():
                for (key, p), g in zip(w.items(), grads, strict=False):
                    update(name, wrong, p, g, state[key], step)
        return [p.detach() for p in w.values()]

    return run


def update(name, wrong, p, g, s, t):
    if name == "sgd":
        if wrong != "decay after momentum":
            g = g + 0.01 * p
        if "v" not in s:
            if wrong == "momentum of the first step":
                s["v"] = 0.1 * g  # wrong: momentum of the first step
            else:
                s["v"] = g.clone()
        else:
            s["v"] = 0.9 * s["v"] + g
        g = g + 0.9 * s["v"]
        if wrong == "decay after momentum":
            g = g + 0.01 * p  # wrong: decay after momentum
        p -= 0.05 * g
    elif name == "adam":
        m = s["m"] = s.get("m", 0) * 0.8 + 0.2 * g
        v = s["v"] = s.get("v", 0) * 0.99 + 0.01 * g * g
        if wrong == "maximum of the corrected":
            v = v / (1 - 0.99**t)  # wrong: maximum of the corrected
            v = s["max"] = torch.maximum(s["max"], v) if "max" in s else v  # wrong: maximum of the corrected
            d = v.sqrt() + 1e-4
        else:
            v = s["max"] = torch.maximum(s["max"], v) if "max" in s else v
            if wrong == "eps inside the root":
                d = (v / (1 - 0.99**t) + 1e-4).sqrt()  # wrong: eps inside the root
            elif wrong == "eps before the correction":
                d = (v.sqrt() + 1e-4) / (1 - 0.99**t) ** 0.5  # wrong: eps before the correction
            else:
                d = v.sqrt() / (1 - 0.99**t) ** 0.5 + 1e-4
        p -= 0.02 * (m / (1 - 0.8**t)) / d
    elif name == "rmsprop":
        v = s["v"] = 0.99 * s.get("v", 0) + 0.01 * g * g
        d = (v + 1e-3).sqrt() if wrong == "eps inside the root" else v.sqrt() + 1e-3  # wrong: eps inside the root
        if wrong == "buffer of the gradient":
            b = s["b"] = 0.9 * s.get("b", 0) + g  # wrong: buffer of the gradient
            p -= 0.01 * b / d
        else:
            b = s["b"] = 0.9 * s.get("b", 0) + g / d
            p -= 0.01 * b
    elif name == "nadam":
        g = g + 0.01 * p
        mu, nxt = 0.9 * (1 - 0.5 * 0.96 ** (t * 0.004)), 0.9 * (1 - 0.5 * 0.96 ** ((t + 1) * 0.004))
        prod = s["prod"] = s.get("prod", 1.0) * mu
        m = s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
        v = s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
        d = (v / (1 - 0.999**t)).sqrt() + 1e-8
        if wrong == "no look ahead":
            p -= 0.02 * (1 - mu) / (1 - prod) * g / d + 0.02 * mu / (1 - prod) * m / d  # wrong: no look ahead
        else:
            p -= 0.02 * (1 - mu) / (1 - prod) * g / d + 0.02 * nxt / (1 - prod * nxt) * m / d
    elif name == "adamax":
        m = s["m"] = 0.9 * s.get("m", torch.zeros_like(p)) + 0.1 * g
        u = s["u"] = torch.maximum(0.999 * s.get("u", torch.zeros_like(p)), g.abs() + 1e-8)
        p -= 0.02 / (1 if wrong == "no correction" else 1 - 0.9**t) * m / u  # wrong: no correction


OPTIM = {
    "sgd": ["", "momentum of the first step", "decay after momentum"],
    "adam": ["", "maximum of the corrected", "eps inside the root", "eps before the correction"],
    "rmsprop": ["", "eps inside the root", "buffer of the gradient"],
    "nadam": ["", "no look ahead"],
    "adamax": ["", "no correction"],
}


# ---------------------------------------------------------------- EMA, batch norm statistics, schedulers, mixed losses


def student_a():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12, momentum=0.1), nn.ReLU(), nn.Linear(12, 6))
    seeded(221, net).train()
    teacher = seeded(222, nn.Linear(8, 6))
    ema = {k: v.clone() for k, v in net.state_dict().items()}
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.2, total_steps=6, cycle_momentum=False)
    for step in range(3):
        x, y = noise(50 + step, 10, 8), ids(60 + step, 6, 10)
        z = net(x)
        with torch.no_grad():
            soft = (teacher(x) / 2.0).softmax(-1)  # wrong: target not softened
        distilled = (
            F.kl_div((z / 2.0).log_softmax(-1), soft, reduction="batchmean") * 4.0
        )  # wrong: temperature not squared, averaged over all, the other divergence
        loss = (
            0.3 * F.cross_entropy(z, y, label_smoothing=0.1) + 0.7 * distilled
        )  # wrong: smoothing missing, weights exchanged
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        decay = min(0.99, (1 + step) / (10 + step))
        for k, v in net.state_dict().items():
            if v.is_floating_point():
                ema[k].mul_(decay).add_(
                    v, alpha=1 - decay
                )  # wrong: average before the step, average without warm-up, average without statistics
    net.eval()
    return [
        net(noise(70, 4, 8)),
        ema["0.weight"],
        ema["1.running_var"],
        ema["1.running_mean"],
    ]  # wrong: average without statistics


def student_b(wrong):
    net = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 6))
    seeded(221, net)
    p = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
    mean, var = torch.zeros(12), torch.ones(12)
    t = seeded(222, nn.Linear(8, 6))
    names = [*p, "mean", "var"]
    avg = {k: v.detach().clone() for k, v in p.items()} | {"mean": mean.clone(), "var": var.clone()}
    dummy = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    sched = torch.optim.lr_scheduler.OneCycleLR(dummy, 0.2, total_steps=6, cycle_momentum=False)

    def forward(x, training):
        nonlocal mean, var
        h = F.linear(x, p["0.weight"], p["0.bias"])
        if training:
            m, v = h.mean(0), h.var(0, unbiased=False)
            with torch.no_grad():
                n = len(h)
                rate = 0.01 if wrong == "momentum of the norm" else 0.1
                mean = (1 - rate) * mean + rate * m  # wrong: momentum of the norm
                more = v if wrong == "variance of the population" else v * n / (n - 1)
                var = (1 - rate) * var + rate * more  # wrong: momentum of the norm, variance of the population
        else:
            m, v = mean, var
        h = (h - m) / (v + 1e-5).sqrt() * p["1.weight"] + p["1.bias"]
        return F.linear(h.relu(), p["3.weight"], p["3.bias"])

    def average(step):
        d = 0.99 if wrong == "average without warm-up" else min(0.99, (1 + step) / (10 + step))
        now = {**p, "mean": mean, "var": var}
        with torch.no_grad():
            for k in names:
                if wrong == "average without statistics" and k in ("mean", "var"):
                    continue
                avg[k] = d * avg[k] + (1 - d) * now[k]  # wrong: average before the step, average without warm-up

    for step in range(3):
        x, y = noise(50 + step, 10, 8), ids(60 + step, 6, 10)
        z = forward(x, True)
        if wrong == "average before the step":
            average(step)
        with torch.no_grad():
            q = F.linear(x, t.weight, t.bias)
            q = F.softmax(q if wrong == "target not softened" else q / 2, -1)  # wrong: target not softened
        lp = F.log_softmax(z / 2, -1)
        if wrong == "the other divergence":
            kl = (lp.exp() * (lp - q.log())).sum(-1).mean()  # wrong: the other divergence
        elif wrong == "averaged over all":
            kl = (q * (q.log() - lp)).mean()  # wrong: averaged over all
        else:
            kl = (q * (q.log() - lp)).sum(-1).mean()
        kl = kl if wrong == "temperature not squared" else kl * 4  # wrong: temperature not squared
        lz = z.log_softmax(-1)
        hard = -(lz.gather(1, y[:, None]).mean())
        if wrong != "smoothing missing":
            hard = 0.9 * hard - 0.1 * lz.mean()
        loss = (
            0.7 * hard + 0.3 * kl if wrong == "weights exchanged" else 0.3 * hard + 0.7 * kl
        )  # wrong: weights exchanged, temperature not squared, smoothing missing
        g = torch.autograd.grad(loss, list(p.values()))
        lr = dummy.param_groups[0]["lr"]
        if wrong == "schedule ahead":
            dummy.step(), sched.step()
            lr = dummy.param_groups[0]["lr"]
        with torch.no_grad():
            for v, d in zip(p.values(), g, strict=False):
                v.sub_(lr * d)  # wrong: schedule ahead
        if wrong != "schedule ahead":
            dummy.step(), sched.step()
        if wrong != "average before the step":
            average(step)
    return [forward(noise(70, 4, 8), False), avg["0.weight"], avg["var"], avg["mean"]]


STUDENT = [
    "",
    "target not softened",
    "temperature not squared",
    "averaged over all",
    "the other divergence",
    "smoothing missing",
    "weights exchanged",
    "average before the step",
    "average without warm-up",
    "momentum of the norm",
    "variance of the population",
    "schedule ahead",
]


# ---------------------------------------------------------------- preference and contrastive losses


def prefer_a():
    model, reference = seeded(231, Tiny()), seeded(232, Tiny())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    t = ids(80, 30, 6, 8)
    mask = torch.ones(6, 8)
    mask[1, 5:] = 0
    mask[4, 6:] = 0

    def score(m):
        lp = m(t)[:, :-1].log_softmax(-1).gather(-1, t[:, 1:, None]).squeeze(-1)  # wrong: not shifted
        return (lp * mask[:, 1:]).sum(-1)  # wrong: mean over tokens, padding in the sum

    for _ in range(2):
        mine = score(model)
        with torch.no_grad():
            ref = score(reference)
        margin = (mine[:3] - mine[3:]) - (
            ref[:3] - ref[3:]
        )  # wrong: reference forgotten, chosen and rejected exchanged
        loss = -F.logsigmoid(0.3 * margin).mean()  # wrong: beta outside
        opt.zero_grad()
        loss.backward()
        opt.step()
    return [p.detach() for p in model.parameters()]


def prefer_b(wrong):
    model, reference = seeded(231, Tiny()), seeded(232, Tiny())
    params = list(model.parameters())
    t = ids(80, 30, 6, 8)
    keep = torch.arange(8)[None] < torch.tensor([8, 5, 8, 8, 6, 8])[:, None]

    def log_probs(m, tokens, valid):
        z = m(tokens)
        if wrong == "not shifted":
            ce = F.cross_entropy(z.flatten(0, 1), tokens.flatten(), reduction="none").view_as(tokens)[
                :, 1:
            ]  # wrong: not shifted
        else:
            ce = F.cross_entropy(z[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(len(z), -1)
        ok = valid[:, 1:].to(ce.dtype)
        if wrong == "padding in the sum":
            return -ce.sum(1)  # wrong: padding in the sum
        if wrong == "mean over tokens":
            return -(ce * ok).sum(1) / ok.sum(1)  # wrong: mean over tokens
        return -(ce * ok).sum(1)  # wrong: not shifted

    for _ in range(2):
        good, bad = log_probs(model, t[:3], keep[:3]), log_probs(model, t[3:], keep[3:])
        with torch.no_grad():
            ref_good, ref_bad = log_probs(reference, t[:3], keep[:3]), log_probs(reference, t[3:], keep[3:])
        if wrong == "reference forgotten":
            logits = good - bad  # wrong: reference forgotten
        elif wrong == "chosen and rejected exchanged":
            logits = (bad - ref_bad) - (good - ref_good)  # wrong: chosen and rejected exchanged
        else:
            logits = (good - ref_good) - (bad - ref_bad)
        if wrong == "beta outside":
            loss = 0.3 * F.softplus(-logits).mean()  # wrong: beta outside
        else:
            loss = F.softplus(-0.3 * logits).mean()  # wrong: reference forgotten, chosen and rejected exchanged
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in params:
                p -= 0.1 * p.grad
    return [p.detach() for p in params]


PREFER = [
    "",
    "not shifted",
    "mean over tokens",
    "padding in the sum",
    "reference forgotten",
    "chosen and rejected exchanged",
    "beta outside",
]


ONE = (torch.float32,)


def pair(a, b, mistakes):
    return lambda dtype: a, lambda m, dtype: lambda: b(m), mistakes, ONE


FAMILIES = {
    "trainer": pair(trainer_a, trainer_b, TRAINER),
    **{f"optim {n}": pair(optim_a(n), lambda m, n=n: optim_b(n, m)(), ms) for n, ms in OPTIM.items()},
    "student": pair(student_a, student_b, STUDENT),
    "prefer": pair(prefer_a, prefer_b, PREFER),
}
PARAMETERS = {}
