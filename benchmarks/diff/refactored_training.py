"""Training as people refactor it: other optimizer kernels, other ways to a gradient, other losses; and with one slip each."""

import math

import torch
import torch.nn.functional as F
from generators import noise
from rewritten_training import integers
from serving import seeded
from torch import nn
from torch.utils.checkpoint import checkpoint

ONE = (torch.float32,)
STEPS = 4


class Sorter(nn.Module):
    """A small classifier with a norm, dropout that is off, and two groups of parameters."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.LayerNorm(24), nn.SiLU(), nn.Linear(24, 16), nn.Tanh())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.body(x))


def data():
    return noise(81, STEPS, 12, 10), integers(82, 4, STEPS, 12)


def rate(step):
    return 0.02 * 0.5 * (1 + math.cos(math.pi * step / STEPS))


# ---------------------------------------------------------------- one loop, and every way in which it is written


def fit_a(dtype):
    model = seeded(80, Sorter())
    xs, ys = data()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]

    def run():
        opt = torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.95))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
        for x, y in zip(xs, ys, strict=True):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
            schedule.step()
        return [p.detach() for p in model.parameters()]

    return run


def fit_b(how, dtype):
    model = seeded(80, Sorter())
    xs, ys = data()
    if how in ("+by hand", "no bias correction", "decay in the gradient", "eps in the root", "+functional"):
        return lambda: fit_by_hand(model, xs, ys, how)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() < 2]
    options = {"lr": 0.02, "betas": (0.9, 0.95)}
    if how in ("+foreach", "+fused", "+maximize"):
        options[how[1:]] = True
    if how == "+one by one":
        options["foreach"] = False
    decay_of_plain = 0.1 if how == "norms decayed" else 0.0
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": decay_of_plain}]
    if how == "+groups the other way round":
        groups = groups[::-1]
    if how == "+two optimizers":
        kinds = [[group] for group in groups]
    else:
        kinds = [groups]
    if how == "one beta":
        options["betas"] = (0.9, 0.999)

    def run():
        if how == "adam for adamw":
            opts = [torch.optim.Adam(groups, **options)]
        else:
            opts = [torch.optim.AdamW(each, **options) for each in kinds]  # wrong: one beta, norms decayed
        for step, (x, y) in enumerate(zip(xs, ys, strict=True)):
            for opt in opts:
                for group in opt.param_groups:
                    group["lr"] = rate(step + 1 if how == "schedule one step early" else step)
            backward(model, x, y, how)
            if how == "clipped at one":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # wrong: clipped at one
            elif how == "head not clipped":
                torch.nn.utils.clip_grad_norm_(model.body.parameters(), 0.5)  # wrong: head not clipped
            elif how == "+clipped by hand":
                total = torch.sqrt(sum(p.grad.pow(2).sum() for p in model.parameters()))
                for p in model.parameters():
                    p.grad.mul_((0.5 / (total + 1e-6)).clamp(max=1.0))
            elif how != "not clipped":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=False)
            for opt in opts:
                opt.step()  # wrong: adam for adamw, norms decayed, not clipped, one beta, schedule one step early
                opt.zero_grad(set_to_none=how != "+zeros")
        return [p.detach() for p in model.parameters()]

    return run


def backward(model, x, y, how):
    """Leave the gradients of one batch in the parameters."""
    if how == "+accumulated":
        for part, target in zip(x.chunk(3), y.chunk(3), strict=True):
            (F.cross_entropy(model(part), target) / 3).backward()
    elif how == "+accumulated and summed":
        for part, target in zip(x.split(5), y.split(5), strict=True):
            F.cross_entropy(model(part), target, reduction="sum").div(12).backward()
    elif how == "+checkpointed":
        h = checkpoint(model.body, x, use_reentrant=False)
        F.cross_entropy(model.head(h), y).backward()
    elif how == "+grad of autograd":
        loss = F.nll_loss(F.log_softmax(model(x), 1), y)
        for p, grad in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
            p.grad = grad
    elif how == "+grad per sample":

        def loss(w, one, target):
            return F.cross_entropy(torch.func.functional_call(model, w, (one[None],)), target[None])

        w = {name: p.detach() for name, p in model.named_parameters()}
        grads = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(w, x, y)
        for name, p in model.named_parameters():
            p.grad = grads[name].mean(0)
    elif how == "+scaled":
        (F.cross_entropy(model(x), y) * 1024.0).backward()
        for p in model.parameters():
            p.grad.div_(1024.0)
    elif how == "+maximize":
        F.log_softmax(model(x), 1).gather(1, y[:, None]).mean().backward()
    elif how == "+batch turned":
        F.cross_entropy(model(x.flip(0)), y.flip(0)).backward()
    elif how == "+soft labels":
        F.cross_entropy(model(x), F.one_hot(y, 4).float()).backward()
    elif how == "+loss by hand":
        z = model(x)
        (z.logsumexp(1) - z[torch.arange(12), y]).mean().backward()
    elif how == "labels smoothed":
        F.cross_entropy(model(x), y, label_smoothing=0.1).backward()  # wrong: labels smoothed
    elif how == "softmax before the loss":
        F.cross_entropy(model(x).softmax(1), y).backward()  # wrong: softmax before the loss
    elif how == "last of the batch dropped":
        F.cross_entropy(model(x[:-1]), y[:-1]).backward()  # wrong: last of the batch dropped
    elif how == "body detached":
        F.cross_entropy(model.head(model.body(x).detach()), y).backward()  # wrong: body detached
        for p in model.body.parameters():
            p.grad = torch.zeros_like(p)  # wrong: body detached
    else:
        F.cross_entropy(model(x), y).backward()


def fit_by_hand(model, xs, ys, how):
    w = {name: p.detach().clone() for name, p in model.named_parameters()}
    m = {name: torch.zeros_like(p) for name, p in w.items()}
    v = {name: torch.zeros_like(p) for name, p in w.items()}

    def loss(w, x, y):
        h = F.layer_norm(x @ w["body.0.weight"].T + w["body.0.bias"], (24,), w["body.1.weight"], w["body.1.bias"])
        h = torch.tanh(F.linear(h * h.sigmoid(), w["body.3.weight"], w["body.3.bias"]))
        logits = F.linear(h, w["head.weight"], w["head.bias"])
        return -logits.log_softmax(-1).gather(1, y[:, None]).mean()

    for step, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if how == "+functional":
            grads = torch.func.grad(loss)(w, x, y)
        else:
            for each in w.values():
                each.requires_grad_()
            loss(w, x, y).backward()
            grads = {name: each.grad for name, each in w.items()}
            w = {name: each.detach() for name, each in w.items()}
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads.values()]))
        by = min(1.0, 0.5 / (norm.item() + 1e-6))
        for name, p in w.items():
            g = grads[name] * by
            if how == "decay in the gradient" and p.dim() > 1:
                g = g + 0.1 * p  # wrong: decay in the gradient
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.95 * v[name] + 0.05 * g * g
            if how == "no bias correction":
                update = m[name] / (v[name].sqrt() + 1e-8)  # wrong: no bias correction
            elif how == "eps in the root":
                update = (m[name] / (1 - 0.9 ** (step + 1))) / (
                    v[name] / (1 - 0.95 ** (step + 1)) + 1e-4
                ).sqrt()  # wrong: eps in the root
            else:
                update = (m[name] / (1 - 0.9 ** (step + 1))) / ((v[name] / (1 - 0.95 ** (step + 1))).sqrt() + 1e-8)
            if p.dim() > 1 and how != "decay in the gradient":
                p = p * (1 - rate(step) * 0.1)
            w[name] = p - rate(step) * update  # wrong: no bias correction, eps in the root
    return list(w.values())


# ---------------------------------------------------------------- other optimizers of the library, and their formulas


def kinds(parameters, kind, **options):
    make = {
        "nadam": lambda: torch.optim.NAdam(parameters, lr=0.01, momentum_decay=0.004, **options),
        "radam": lambda: torch.optim.RAdam(parameters, lr=0.01, **options),
        "adamax": lambda: torch.optim.Adamax(parameters, lr=0.01, **options),
        "adadelta": lambda: torch.optim.Adadelta(parameters, lr=1.0, **options),
        "rprop": lambda: torch.optim.Rprop(parameters, lr=0.01, **options),
        "nesterov": lambda: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, **options),
    }
    return make[kind]()


def library_a(kind):
    def build(dtype):
        model = seeded(83, Sorter())
        xs, ys = data()
        return lambda: trained(model, xs, ys, kinds(list(model.parameters()), kind, foreach=False))

    return build


def library_b(kind):
    def build(how, dtype):
        model = seeded(83, Sorter())
        xs, ys = data()
        parameters = list(model.parameters())
        if how == "+foreach of the library":
            return lambda: trained(model, xs, ys, kinds(parameters, kind, foreach=True))
        if how == "largest not kept":
            return lambda: adamax_by_hand(model, xs, ys, False)
        if how == "+largest by hand":
            return lambda: adamax_by_hand(model, xs, ys, True)
        if how == "+look ahead by hand":
            return lambda: nesterov_by_hand(model, xs, ys, True)
        if how == "heavy ball":
            return lambda: nesterov_by_hand(model, xs, ys, False)
        raise AssertionError(how)

    return build


def trained(model, xs, ys, opt):
    for x, y in zip(xs, ys, strict=True):
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
    return [p.detach() for p in model.parameters()]


@torch.no_grad()
def adamax_by_hand(model, xs, ys, keep):
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
    for step, (x, y) in enumerate(zip(xs, ys, strict=True), 1):
        with torch.enable_grad():
            grads = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        for p, g, (m, u) in zip(model.parameters(), grads, state, strict=True):
            m.mul_(0.9).add_(g, alpha=0.1)
            if keep:
                u.copy_(torch.maximum(u * 0.999, g.abs() + 1e-8))
            else:
                u.copy_(u * 0.999 + g.abs() * 0.001 + 1e-8)  # wrong: largest not kept
            p.sub_(0.01 / (1 - 0.9**step) * m / u)
    return [p.detach() for p in model.parameters()]


@torch.no_grad()
def nesterov_by_hand(model, xs, ys, ahead):
    state = [torch.zeros_like(p) for p in model.parameters()]
    for x, y in zip(xs, ys, strict=True):
        with torch.enable_grad():
            grads = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        for p, g, m in zip(model.parameters(), grads, state, strict=True):
            m.copy_(0.9 * m + g)
            if ahead:
                p.copy_(p - 0.1 * (g + 0.9 * m))
            else:
                p.copy_(p - 0.1 * m)  # wrong: heavy ball
    return [p.detach() for p in model.parameters()]


# ---------------------------------------------------------------- segmentation: dice, focal, boundaries weighted


def segment_a(dtype):
    net = seeded(84, nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1)))
    x, y = noise(85, 4, 2, 8, 8), (noise(86, 4, 1, 8, 8) > 0.3).float()
    opt = torch.optim.SGD(net.parameters(), 0.5)

    def run():
        for _ in range(2):
            opt.zero_grad()
            z = net(x)
            p = torch.sigmoid(z)
            dice = 1 - (2 * (p * y).sum((1, 2, 3)) + 1) / (
                p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1
            )  # wrong: dice of the whole batch
            entropy = F.binary_cross_entropy_with_logits(z, y, reduction="none")
            right = p * y + (1 - p) * (1 - y)
            weight = 0.25 * y + 0.75 * (1 - y)  # wrong: classes exchanged
            loss = dice.mean() + (weight * (1 - right) ** 2 * entropy).mean()
            loss.backward()
            opt.step()
        return [loss.detach(), *(p.detach() for p in net.parameters())]

    return run


def segment_b(how, dtype):
    net = seeded(84, nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1)))
    x, y = noise(85, 4, 2, 8, 8), (noise(86, 4, 1, 8, 8) > 0.3).float()

    def run():
        for _ in range(2):
            z = net(x).flatten(1)
            t = y.flatten(1)
            p = 1 / (1 + torch.exp(-z))
            smooth = 1e-5 if how == "smoothed less" else 1.0
            both = torch.einsum("bn,bn->b", p, t)
            if how == "dice of the whole batch":
                dice = 1 - (2 * both.sum() + 1) / (p.sum() + t.sum() + 1)  # wrong: dice of the whole batch
            elif how == "squares below":
                dice = 1 - ((2 * both + 1) / (p.square().sum(1) + t.sum(1) + 1)).mean()  # wrong: squares below
            else:
                dice = 1 - ((2 * both + smooth) / (p.sum(1) + t.sum(1) + smooth)).mean()  # wrong: smoothed less
            log_right = torch.where(t > 0, F.logsigmoid(z), F.logsigmoid(-z))
            if how == "focus of one":
                focal = -(1 - log_right.exp()) * log_right  # wrong: focus of one
            else:
                focal = -((1 - log_right.exp()) ** 2) * log_right
            if how == "classes exchanged":
                weight = torch.where(t > 0, 0.75, 0.25)  # wrong: classes exchanged
            else:
                weight = torch.where(t > 0, 0.25, 0.75)
            loss = dice + (weight * focal).mean()
            grads = torch.autograd.grad(loss, list(net.parameters()))
            with torch.no_grad():
                for p, g in zip(net.parameters(), grads, strict=True):
                    p.sub_(g, alpha=0.5)
        return [loss.detach(), *(p.detach() for p in net.parameters())]

    return run


# ---------------------------------------------------------------- a tied language model with an average of its weights


def tied_a(dtype):
    table, mix = seeded(87, nn.Embedding(20, 12)), seeded(88, nn.Linear(12, 12))
    xs = integers(89, 20, 3, 6, 7)
    opt = torch.optim.Adagrad([*table.parameters(), *mix.parameters()], lr=0.05)
    average = [p.detach().clone() for p in (*table.parameters(), *mix.parameters())]

    def run():
        for x in xs:
            h = torch.tanh(mix(table(x[:, :-1])))
            logits = F.linear(h, table.weight)
            loss = F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), ignore_index=0)
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                for a, p in zip(average, (*table.parameters(), *mix.parameters()), strict=True):
                    a.lerp_(p, 0.1)
        return average

    return run


def tied_b(how, dtype):
    table, mix = seeded(87, nn.Embedding(20, 12)), seeded(88, nn.Linear(12, 12))
    xs = integers(89, 20, 3, 6, 7)
    inside, out = table.weight.detach().clone(), table.weight.detach().clone()
    weight, bias = mix.weight.detach().clone(), mix.bias.detach().clone()
    parameters = [inside, out, weight, bias]
    average = [inside.clone(), weight.clone(), bias.clone()]
    squares = [torch.zeros_like(p) for p in parameters]

    def run():
        for x in xs:
            used = [p.detach().requires_grad_() for p in parameters]
            one_hot = F.one_hot(x[:, :-1], 20).float()
            h = torch.tanh((one_hot @ used[0]) @ used[2].T + used[3])
            logits = torch.einsum("btd,vd->btv", h, used[1])
            if how == "target not moved":
                target = x[:, :-1]  # wrong: target not moved
            else:
                target = x[:, 1:]
            kept = (target != 0).float()
            loss = logits.logsumexp(-1) - logits.gather(-1, target[..., None])[..., 0]  # wrong: target not moved
            if how == "padding counted in the mean":
                loss = (loss * kept).mean()  # wrong: padding counted in the mean
            else:
                loss = (loss * kept).sum() / kept.sum()
            grads = list(torch.autograd.grad(loss, used))
            if how != "untied":
                grads[0] = grads[1] = grads[0] + grads[1]
            with torch.no_grad():
                for p, g, s in zip(parameters, grads, squares, strict=True):
                    s.addcmul_(g, g)  # wrong: untied
                    p.addcdiv_(g, s.sqrt() + 1e-10, value=-0.05)  # wrong: untied
                for a, p in zip(average, (inside, weight, bias), strict=True):
                    if how == "average the other way":
                        a.mul_(0.1).add_(p, alpha=0.9)  # wrong: average the other way
                    else:
                        a.mul_(0.9).add_(p, alpha=0.1)
        return average

    return run


# ---------------------------------------------------------------- a gradient of a gradient, a penalty, targets


def meta_a(dtype):
    net = seeded(90, nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)))
    x, y = noise(91, 2, 5, 3), noise(92, 2, 5, 1)

    def run():
        w = dict(net.named_parameters())
        loss = F.mse_loss(torch.func.functional_call(net, w, (x[0],)), y[0])
        grads = torch.autograd.grad(loss, list(w.values()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(w.items(), grads, strict=True)}
        outer = F.mse_loss(torch.func.functional_call(net, fast, (x[1],)), y[1])
        outer.backward()
        return [outer.detach(), *(p.grad for p in net.parameters())]

    return run


def meta_b(how, dtype):
    net = seeded(90, nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)))
    x, y = noise(91, 2, 5, 3), noise(92, 2, 5, 1)

    def predicted(w, x):
        return torch.tanh(x @ w[0].T + w[1]) @ w[2].T + w[3]

    def inner(w):
        return (predicted(w, x[0]) - y[0]).square().mean()

    def outer(w):
        if how == "first order":
            grads = [g.detach() for g in torch.func.grad(inner)(w)]  # wrong: first order
        else:
            grads = torch.func.grad(inner)(w)
        by = 0.01 if how == "inner rate" else 0.1
        fast = [p - by * g for p, g in zip(w, grads, strict=True)]  # wrong: first order, inner rate
        if how == "outer loss of the support":
            return (predicted(fast, x[0]) - y[0]).square().mean()  # wrong: outer loss of the support
        return (predicted(fast, x[1]) - y[1]).square().mean()

    def run():
        grads, value = torch.func.grad_and_value(outer)([p.detach() for p in net.parameters()])
        return [value, *grads]

    return run


def penalty_a(dtype):
    critic = seeded(93, nn.Sequential(nn.Linear(6, 10), nn.Softplus(), nn.Linear(10, 1)))
    real, fake, mix = noise(94, 8, 6), noise(95, 8, 6), torch.sigmoid(noise(96, 8, 1))

    def run():
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        loss = critic(fake).mean() - critic(real).mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()
        loss.backward()
        return [loss.detach(), *(p.grad for p in critic.parameters())]

    return run


def penalty_b(how, dtype):
    critic = seeded(93, nn.Sequential(nn.Linear(6, 10), nn.Softplus(), nn.Linear(10, 1)))
    real, fake, mix = noise(94, 8, 6), noise(95, 8, 6), torch.sigmoid(noise(96, 8, 1))

    def run():
        between = torch.lerp(fake, real, mix).detach()
        slope = torch.func.vmap(torch.func.grad(lambda one: critic(one).squeeze()))(between)
        if how == "norm of the whole batch":
            penalty = (slope.square().sum().sqrt() - 1).square()  # wrong: norm of the whole batch
        elif how == "penalty of one side":
            penalty = F.relu(slope.square().sum(1).sqrt() - 1).square().mean()  # wrong: penalty of one side
        else:
            penalty = (slope.square().sum(1).sqrt() - 1).square().mean()
        judged = critic(torch.cat([real, fake]))
        if how == "sides exchanged":
            loss = judged[:8].mean() - judged[8:].mean() + 10 * penalty  # wrong: sides exchanged
        else:
            loss = judged[8:].mean() - judged[:8].mean() + 10 * penalty
        loss.backward()
        return [loss.detach(), *(p.grad for p in critic.parameters())]

    return run


def targets_a(dtype):
    net, slow = seeded(97, nn.Linear(5, 3)), seeded(98, nn.Linear(5, 3))
    seen, then = noise(99, 3, 8, 5), noise(100, 3, 8, 5)
    action, reward, done = integers(101, 3, 3, 8), noise(102, 3, 8), (integers(103, 4, 3, 8) == 0).float()
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def run():
        for i in range(3):
            q = net(seen[i]).gather(1, action[i][:, None]).squeeze(1)
            with torch.no_grad():
                best = net(then[i]).argmax(1, keepdim=True)
                target = reward[i] + 0.9 * (1 - done[i]) * slow(then[i]).gather(1, best).squeeze(1)
            loss = F.huber_loss(q, target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                for s, p in zip(slow.parameters(), net.parameters(), strict=True):
                    s.mul_(0.95).add_(p, alpha=0.05)
        return [p.detach() for p in (*net.parameters(), *slow.parameters())]

    return run


def targets_b(how, dtype):
    net, slow = seeded(97, nn.Linear(5, 3)), seeded(98, nn.Linear(5, 3))
    seen, then = noise(99, 3, 8, 5), noise(100, 3, 8, 5)
    action, reward, done = integers(101, 3, 3, 8), noise(102, 3, 8), (integers(103, 4, 3, 8) == 0).float()
    w, b, sw, sb = (p.detach().clone() for p in (*net.parameters(), *slow.parameters()))

    def run():
        nonlocal w, b, sw, sb
        for i in range(3):
            later = then[i] @ sw.T + sb
            if how == "single q":
                value = later.amax(1)  # wrong: single q
            else:
                value = later[torch.arange(8), (then[i] @ w.T + b).argmax(1)]
            if how == "end not seen":
                target = reward[i] + 0.9 * value  # wrong: end not seen
            else:
                target = torch.where(done[i] > 0, reward[i], reward[i] + 0.9 * value)
            used = [w.requires_grad_(), b.requires_grad_()]
            q = ((seen[i] @ w.T + b) * F.one_hot(action[i], 3)).sum(1)
            apart = (q - target).abs()
            if how == "squares for huber":
                loss = apart.square().mean() / 2  # wrong: squares for huber
            else:
                loss = torch.where(apart < 1, apart.square() / 2, apart - 0.5).mean()
            grads = torch.autograd.grad(loss, used)
            w, b = (p.detach() - 0.1 * g for p, g in zip(used, grads, strict=True))
            if how == "target follows too fast":
                sw, sb = 0.5 * sw + 0.5 * w, 0.5 * sb + 0.5 * b  # wrong: target follows too fast
            else:
                sw, sb = 0.95 * sw + 0.05 * w, 0.95 * sb + 0.05 * b
        return [w, b, sw, sb]

    return run


FAMILIES = {
    "fit": (
        fit_a,
        fit_b,
        [
            "",
            "+foreach",
            "+fused",
            "+maximize",
            "+one by one",
            "+groups the other way round",
            "+two optimizers",
            "+zeros",
            "+clipped by hand",
            "+accumulated",
            "+accumulated and summed",
            "+checkpointed",
            "+grad of autograd",
            "+grad per sample",
            "+scaled",
            "+batch turned",
            "+soft labels",
            "+loss by hand",
            "+by hand",
            "+functional",
            "no bias correction",
            "decay in the gradient",
            "eps in the root",
            "one beta",
            "norms decayed",
            "adam for adamw",
            "schedule one step early",
            "clipped at one",
            "head not clipped",
            "not clipped",
            "labels smoothed",
            "softmax before the loss",
            "last of the batch dropped",
            "body detached",
        ],
        ONE,
    ),
    **{
        f"library {kind}": (library_a(kind), library_b(kind), ["+foreach of the library"], ONE)
        for kind in ("nadam", "radam", "adadelta", "rprop")
    },
    "library adamax": (
        library_a("adamax"),
        library_b("adamax"),
        ["+foreach of the library", "+largest by hand", "largest not kept"],
        ONE,
    ),
    "library nesterov": (
        library_a("nesterov"),
        library_b("nesterov"),
        ["+foreach of the library", "+look ahead by hand", "heavy ball"],
        ONE,
    ),
    "segment": (
        segment_a,
        segment_b,
        ["", "smoothed less", "dice of the whole batch", "squares below", "focus of one", "classes exchanged"],
        ONE,
    ),
    "tied": (
        tied_a,
        tied_b,
        ["", "target not moved", "padding counted in the mean", "untied", "average the other way"],
        ONE,
    ),
    "meta": (meta_a, meta_b, ["", "first order", "inner rate", "outer loss of the support"], ONE),
    "penalty": (
        penalty_a,
        penalty_b,
        ["", "norm of the whole batch", "penalty of one side", "sides exchanged"],
        ONE,
    ),
    "targets": (
        targets_a,
        targets_b,
        ["", "single q", "end not seen", "squares for huber", "target follows too fast"],
        ONE,
    ),
}
PARAMETERS = {}
