"""Training as people rewrite it: losses, advantages, optimizers, averages, accumulation."""

import math

import torch
import torch.nn.functional as F
from library_models import made
from signals import noise
from torch import nn


def integers(seed, high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    def __init__(self, out=5):
        super().__init__()
        self.first, self.second = nn.Linear(12, 20), nn.Linear(20, out)
        made(self)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def parameters(*models):
    return [each.detach().clone() for model in models for each in model.parameters()]


# ---------------------------------------------------------------- Muon: steps made orthogonal


def muon_a(dtype):
    net, xs, ys = Net(), noise(20, 3, 16, 12), integers(21, 5, 3, 16)
    moments = [torch.zeros_like(p) for p in net.parameters()]

    def run():
        for x, y in zip(xs, ys, strict=True):
            net.zero_grad()
            F.cross_entropy(net(x), y).backward()
            with torch.no_grad():
                for p, m in zip(net.parameters(), moments, strict=True):
                    m.lerp_(p.grad, 1 - 0.95)
                    update = p.grad.lerp(m, 0.95)  # wrong: without looking ahead
                    if p.ndim == 2:
                        u = update.T if p.shape[0] > p.shape[1] else update
                        u = u / (u.norm() + 1e-7)
                        for _ in range(5):
                            a = u @ u.T
                            b = -4.7750 * a + 2.0315 * a @ a
                            u = 3.4445 * u + b @ u
                        update = u.T if p.shape[0] > p.shape[1] else u
                        update = update * max(1, p.shape[0] / p.shape[1]) ** 0.5
                    p.mul_(1 - 0.02 * 0.1).add_(update, alpha=-0.02)
        return parameters(net)

    return run


def muon_b(wrong, dtype):
    net, xs, ys = Net(), noise(20, 3, 16, 12), integers(21, 5, 3, 16)
    opt = Muon(net.parameters(), wrong)

    def run():
        for x, y in zip(xs, ys, strict=True):
            loss = -F.log_softmax(net(x), -1).gather(1, y[:, None]).mean()
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
        return parameters(net)

    return run


class Muon(torch.optim.Optimizer):
    def __init__(self, params, wrong):
        super().__init__(params, {"lr": 0.02, "decay": 0.1})
        self.wrong = wrong

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            buf = state.setdefault("buf", torch.zeros_like(p))
            if self.wrong == "moment not averaged":
                buf.mul_(0.95).add_(p.grad)  # wrong: moment not averaged
            else:
                buf.mul_(0.95).add_(p.grad, alpha=1 - 0.95)
            if self.wrong == "without looking ahead":
                g = buf.clone()  # wrong: without looking ahead
            else:
                g = p.grad * (1 - 0.95) + buf * 0.95
            if p.dim() == 2:
                g = self.orthogonal(g)
                if self.wrong == "scale of the shape upside down":
                    g.mul_(math.sqrt(max(1, p.size(1) / p.size(0))))  # wrong: scale of the shape upside down
                else:
                    g.mul_(math.sqrt(max(1, p.size(0) / p.size(1))))
            p.mul_(1 - 0.002)
            p.sub_(0.02 * g)  # wrong: scale of the shape upside down

    def orthogonal(self, g):
        tall = g.size(0) > g.size(1)
        x = g.mT if tall else g
        x = x / x.square().sum().sqrt().add(1e-7)
        steps = 4 if self.wrong == "one step fewer" else 5
        for _ in range(steps):
            s = x @ x.mT
            x = torch.addmm(x, torch.addmm(s, s, s, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
        return x.mT.contiguous() if tall else x  # wrong: one step fewer


# ---------------------------------------------------------------- Lion


def lion_a(dtype):
    net, xs, ys = Net(1), noise(22, 4, 16, 12), noise(23, 4, 16, 1)
    m = {name: torch.zeros_like(p) for name, p in net.named_parameters()}

    def run():
        for x, y in zip(xs, ys, strict=True):
            net.zero_grad()
            F.smooth_l1_loss(net(x), y, beta=0.5).backward()
            with torch.no_grad():
                for name, p in net.named_parameters():
                    p.mul_(1 - 0.01 * 0.05)
                    update = m[name] * 0.9 + p.grad * 0.1
                    p.add_(update.sign(), alpha=-0.01)
                    m[name].mul_(0.99).add_(p.grad, alpha=0.01)
        return parameters(net)

    return run


def lion_b(wrong, dtype):
    net, xs, ys = Net(1), noise(22, 4, 16, 12), noise(23, 4, 16, 1)
    w = [p.detach().clone() for p in net.parameters()]

    def loss(w, x, y):
        out = torch.tanh(x @ w[0].T + w[1]) @ w[2].T + w[3]
        e = (out - y).abs()
        if wrong == "plain distances":
            return e.mean()  # wrong: plain distances
        return torch.where(e < 0.5, e * e, e - 0.25).mean()

    def run():
        nonlocal w
        m = [torch.zeros_like(each) for each in w]
        for x, y in zip(xs, ys, strict=True):
            grads = torch.func.grad(loss)(w, x, y)
            if wrong == "sign of the gradient":
                step = [torch.sign(g) for g in grads]  # wrong: sign of the gradient
            elif wrong == "betas exchanged":
                step = [
                    torch.sign(0.99 * b + 0.01 * g) for b, g in zip(m, grads, strict=True)
                ]  # wrong: betas exchanged
            else:
                step = [torch.sign(0.9 * b + 0.1 * g) for b, g in zip(m, grads, strict=True)]
            if wrong == "decay after the step":
                w = [(p - 0.01 * s) * (1 - 0.0005) for p, s in zip(w, step, strict=True)]  # wrong: decay after the step
            else:
                w = [p * (1 - 0.0005) - 0.01 * s for p, s in zip(w, step, strict=True)]  # wrong: sign of the gradient
            m = [0.99 * b + 0.01 * g for b, g in zip(m, grads, strict=True)]
        return w

    return run


# ---------------------------------------------------------------- advantages and the loss of an actor and a critic


def actor_a(dtype):
    net, critic = Net(4), Net(1)
    obs, act = noise(24, 10, 3, 12), integers(25, 4, 9, 3)
    reward, done = noise(26, 9, 3), (integers(27, 5, 9, 3) == 0).float()
    opt = torch.optim.Adam([*net.parameters(), *critic.parameters()], lr=0.01, eps=1e-5)

    def run():
        with torch.no_grad():
            v = critic(obs).squeeze(-1)
            advantage, last = torch.zeros(9, 3), torch.zeros(3)
            for t in reversed(range(9)):
                delta = reward[t] + 0.9 * v[t + 1] * (1 - done[t]) - v[t]
                last = delta + 0.9 * 0.8 * (1 - done[t]) * last
                advantage[t] = last
            target = advantage + v[:-1]
        logp = F.log_softmax(net(obs[:-1]), -1)
        chosen = logp.gather(-1, act.unsqueeze(-1)).squeeze(-1)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        value = critic(obs[:-1]).squeeze(-1)
        loss = -(chosen * advantage).mean() + 0.5 * F.mse_loss(value, target) - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        opt.step()
        return [loss.detach(), *parameters(net, critic)]

    return run


def actor_b(wrong, dtype):
    net, critic = Net(4), Net(1)
    obs, act = noise(24, 10, 3, 12), integers(25, 4, 9, 3)
    reward, done = noise(26, 9, 3), (integers(27, 5, 9, 3) == 0).float()
    opt = torch.optim.Adam([*net.parameters(), *critic.parameters()], lr=0.01, eps=1e-5)

    def run():
        v = critic(obs)[..., 0]
        frozen = v.detach()
        alive = 1 - done
        if wrong == "end of the episode of the next step":
            alive = torch.cat([alive[1:], alive[-1:]])
        if wrong == "value beyond the end":
            delta = torch.add(reward, frozen[1:], alpha=0.9) - frozen[:-1]  # wrong: value beyond the end
        else:
            delta = reward + 0.9 * alive * frozen[1:] - frozen[:-1]  # wrong: end of the episode of the next step
        weights = torch.eye(9).repeat(3, 1, 1)
        by = 0.9 if wrong == "lambda forgotten in the sum" else 0.72
        for t in range(9):
            for s in range(t + 1, 9):
                weights[:, t, s] = weights[:, t, s - 1] * by * alive[s - 1]  # wrong: lambda forgotten in the sum
        advantage = torch.einsum("nts,sn->tn", weights, delta)  # wrong: lambda forgotten in the sum
        dist = torch.distributions.Categorical(logits=net(obs[:-1]))
        policy = -(dist.log_prob(act) * advantage).mean()
        if wrong == "target not frozen":
            error = (v[:-1] - (advantage + v[:-1])).square().mean()  # wrong: target not frozen
        else:
            error = (v[:-1] - (advantage + frozen[:-1])).square().mean()
        loss = policy + 0.5 * error - 0.01 * dist.entropy().mean()
        for p in [*net.parameters(), *critic.parameters()]:
            p.grad = None
        loss.backward()
        opt.step()
        return [loss.detach(), *parameters(net, critic)]

    return run


# ---------------------------------------------------------------- contrast between two views, and a slow teacher


def contrast_a(dtype):
    net, teacher = Net(8), Net(8)
    xs, zs = noise(28, 3, 10, 12), noise(29, 3, 10, 12)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def run():
        for x, z in zip(xs, zs, strict=True):
            q = F.normalize(net(x), dim=1)
            with torch.no_grad():
                k = F.normalize(teacher(z), dim=1)
            logits = q @ k.t() / 0.2
            loss = F.cross_entropy(logits, torch.arange(10))
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                for slow, fast in zip(teacher.parameters(), net.parameters(), strict=True):
                    slow.mul_(0.99).add_(fast, alpha=0.01)
        return parameters(net, teacher)

    return run


@torch.no_grad()
def follow(teacher, net, by):
    torch._foreach_lerp_(
        list(teacher.parameters()), list(net.parameters()), by
    )  # wrong: pace of the teacher, teacher before the step


def contrast_b(wrong, dtype):
    net, teacher = Net(8), Net(8)
    xs, zs = noise(28, 3, 10, 12), noise(29, 3, 10, 12)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def run():
        for x, z in zip(xs, zs, strict=True):
            k = teacher(z).detach()
            q = net(x)
            if wrong == "keys not of length one":
                s = torch.einsum("ic,jc->ij", q / q.norm(dim=1, keepdim=True), k)  # wrong: keys not of length one
            else:
                s = F.cosine_similarity(q[:, None], k[None], dim=-1)  # wrong: keys not of length one
            if wrong == "multiplied by the temperature":
                s = s * 0.2  # wrong: multiplied by the temperature
            else:
                s = s * 5.0
            if wrong == "itself left out of the sum":
                total = s.masked_fill(torch.eye(10, dtype=torch.bool), -1e9).logsumexp(
                    1
                )  # wrong: itself left out of the sum
            else:
                total = s.logsumexp(1)
            loss = (total - s.diagonal()).mean()  # wrong: itself left out of the sum
            if wrong == "teacher before the step":
                follow(teacher, net, 0.01)  # wrong: teacher before the step
            opt.zero_grad()
            loss.backward()
            opt.step()
            if wrong == "pace of the teacher":
                follow(teacher, net, 0.1)  # wrong: pace of the teacher
            elif wrong != "teacher before the step":
                follow(teacher, net, 0.01)
        return parameters(net, teacher)

    return run


# ---------------------------------------------------------------- two nets against each other


def rivals_a(dtype):
    maker, judge = Net(12), Net(1)
    zs, reals = noise(30, 2, 8, 12), noise(31, 2, 8, 12)
    om = torch.optim.Adam(maker.parameters(), lr=2e-2, betas=(0.5, 0.999))
    oj = torch.optim.Adam(judge.parameters(), lr=2e-2, betas=(0.5, 0.999))

    def run():
        for z, real in zip(zs, reals, strict=True):
            fake = maker(z)
            oj.zero_grad()
            F.binary_cross_entropy_with_logits(judge(real), torch.ones(8, 1)).backward()
            F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(8, 1)).backward()
            oj.step()
            om.zero_grad()
            F.binary_cross_entropy_with_logits(judge(fake), torch.ones(8, 1)).backward()
            om.step()
        return parameters(maker, judge)

    return run


def rivals_b(wrong, dtype):
    maker, judge = Net(12), Net(1)
    zs, reals = noise(30, 2, 8, 12), noise(31, 2, 8, 12)
    om = torch.optim.Adam(maker.parameters(), lr=2e-2, betas=(0.5, 0.999), foreach=False)
    oj = torch.optim.Adam(judge.parameters(), lr=2e-2, betas=(0.5, 0.999), foreach=False)

    def run():
        for z, real in zip(zs, reals, strict=True):
            fake = maker(z)
            with torch.no_grad():
                frozen = maker(z)
            oj.zero_grad()
            both = judge(torch.cat([real, frozen]))
            if wrong == "labels made soft":
                loss = (
                    F.softplus(-both[:8]).mean() + F.softplus(both[8:]).mean() + 0.1 * both[:8].mean()
                )  # wrong: labels made soft
            elif wrong == "mean of both":
                loss = F.softplus(torch.cat([-both[:8], both[8:]])).mean()  # wrong: mean of both
            else:
                loss = F.softplus(-both[:8]).mean() + F.softplus(both[8:]).mean()
            loss.backward()
            oj.step()
            om.zero_grad()
            if wrong == "loss that saturates":
                (-F.softplus(judge(fake)).mean()).backward()  # wrong: loss that saturates
            else:
                F.softplus(-judge(fake)).mean().backward()
            om.step()
        return parameters(maker, judge)

    return run


# ---------------------------------------------------------------- losses of many kinds, summed


def losses_a(dtype):
    net = Net(12)
    x, y, soft = noise(32, 2, 9, 12), integers(33, 12, 2, 9), noise(34, 2, 9, 12)
    y[:, :2] = -100

    def run():
        net.zero_grad()
        logits = net(x)
        ce = F.cross_entropy(logits[:, :-1].reshape(-1, 12), y[:, 1:].reshape(-1))
        z = 1e-2 * torch.logsumexp(logits, -1).pow(2).mean()
        kd = F.kl_div(F.log_softmax(logits / 2, -1), F.softmax(soft / 2, -1), reduction="batchmean") * 4
        focal = (1 - logits.softmax(-1)).pow(2) * -logits.log_softmax(-1)
        (ce + z + 0.1 * kd + 0.01 * focal.mean()).backward()
        return [each.grad.clone() for each in net.parameters()]

    return run


def losses_b(wrong, dtype):
    net = Net(12)
    x, y, soft = noise(32, 2, 9, 12), integers(33, 12, 2, 9), noise(34, 2, 9, 12)
    y[:, :2] = -100

    def run():
        h = torch.tanh(x.view(-1, 12) @ net.first.weight.T + net.first.bias)
        logits = (h @ net.second.weight.T + net.second.bias).view(2, 9, 12)
        logp = logits - logits.logsumexp(-1, keepdim=True)
        labels = F.pad(y[:, 1:], (0, 1), value=-100)
        keep = labels != -100
        picked = logp.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        if wrong == "ignored ones counted":
            ce = -(picked * keep).mean()  # wrong: ignored ones counted
        elif wrong == "mean of each row":
            ce = -((picked * keep).sum(1) / keep.sum(1)).mean()
        else:
            ce = -(picked * keep).sum() / keep.sum()
        if wrong == "penalty not squared":
            z = 1e-2 * logits.logsumexp(-1).mean()  # wrong: penalty not squared
        else:
            z = 1e-2 * logits.logsumexp(-1).square().mean()
        p = (soft / 2).softmax(-1)
        each = p * (p.log() - (logits / 2).log_softmax(-1))
        if wrong == "mean over the classes":
            kd = each.mean() * 4  # wrong: mean over the classes
        elif wrong == "temperature not made up for":
            kd = each.sum() / 2  # wrong: temperature not made up for
        else:
            kd = each.sum() / 2 * 4
        if wrong == "focus on the easy":
            focal = -(logp.exp() ** 2 * logp).mean()  # wrong: focus on the easy
        else:
            focal = -((1 - logp.exp()) ** 2 * logp).mean()
        loss = 0.1 * kd + 0.01 * focal + z + ce
        return list(torch.autograd.grad(loss, list(net.parameters())))

    return run


# ---------------------------------------------------------------- equal trainings, written differently


def same_a(dtype):
    net, xs, ys = Net(5), noise(35, 3, 12, 12), integers(36, 5, 3, 12)
    opt = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.1)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)

    def run():
        for x, y in zip(xs, ys, strict=True):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            plan.step()
        return parameters(net)

    return run


def same_b(wrong, dtype):
    net, xs, ys = Net(5), noise(35, 3, 12, 12), integers(36, 5, 3, 12)
    ways = {
        "+micro-batches": micro, "+functions": functional, "+backward by hand": by_hand, "+for each sample": per_sample,
        "+recomputed": recomputed, "+compiled without a compiler": graphed, "+groups and foreach": grouped,
    }  # fmt: skip
    if wrong in ways:
        return lambda: ways[wrong](net, xs, ys)
    return lambda: grouped(net, xs, ys, wrong)


def rate(step):
    return 0.02 * (1 + math.cos(math.pi * step / 5)) / 2


def grouped(net, xs, ys, wrong=""):
    groups = [{"params": list(net.first.parameters())}, {"params": list(net.second.parameters())}]
    opt = torch.optim.AdamW(groups, lr=0.02, weight_decay=0.1, foreach=True)
    for step, (x, y) in enumerate(zip(xs, ys, strict=True)):
        at = step + 1 if wrong == "rate of the step after" else step
        for each in opt.param_groups:
            each["lr"] = rate(at)
        loss = F.nll_loss(F.log_softmax(net(x), 1), y)
        opt.zero_grad(set_to_none=False)
        loss.backward()
        if wrong == "clipped layer by layer":
            for each in opt.param_groups:
                torch.nn.utils.clip_grad_norm_(each["params"], 0.5)  # wrong: clipped layer by layer
        else:
            total = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
            for p in net.parameters():
                p.grad.mul_((0.5 / (total + 1e-6)).clamp(max=1.0))
        opt.step()  # wrong: rate of the step after
    return parameters(net)


def adam_by_hand(w, grads, state, step):
    total = sum(g.square().sum() for g in grads).sqrt()
    grads = [g * min(1.0, 0.5 / (float(total) + 1e-6)) for g in grads]
    done = []
    for i, (p, g) in enumerate(zip(w, grads, strict=True)):
        m, v = state.get(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        state[i] = m, v
        p = p - rate(step) * 0.1 * p
        done.append(p - rate(step) * (m / (1 - 0.9 ** (step + 1))) / ((v / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8))
    return done


def micro(net, xs, ys):
    opt = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.1)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)
    for x, y in zip(xs, ys, strict=True):
        for part, label in zip(x.split(4), y.split(4), strict=True):
            (F.cross_entropy(net(part), label) / 3).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        opt.zero_grad()
        plan.step()
    return parameters(net)


def functional(net, xs, ys):
    w, state = [p.detach().clone() for p in net.parameters()], {}

    def loss(w, x, y):
        out = torch.tanh(x @ w[0].T + w[1]) @ w[2].T + w[3]
        return F.cross_entropy(out, y)

    for step, (x, y) in enumerate(zip(xs, ys, strict=True)):
        w = adam_by_hand(w, torch.func.grad(loss)(w, x, y), state, step)
    return w


def per_sample(net, xs, ys):
    w, state = [p.detach().clone() for p in net.parameters()], {}

    def loss(w, x, y):
        out = torch.tanh(w[0] @ x + w[1])
        return F.cross_entropy((w[2] @ out + w[3])[None], y[None])

    for step, (x, y) in enumerate(zip(xs, ys, strict=True)):
        grads = torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(w, x, y)
        w = adam_by_hand(w, [g.mean(0) for g in grads], state, step)
    return w


def by_hand(net, xs, ys):
    w, state = [p.detach().clone() for p in net.parameters()], {}
    for step, (x, y) in enumerate(zip(xs, ys, strict=True)):
        h = torch.tanh(x @ w[0].T + w[1])
        p = torch.softmax(h @ w[2].T + w[3], -1)
        d = (p - F.one_hot(y, 5)) / 12
        e = (d @ w[2]) * (1 - h * h)
        w = adam_by_hand(w, [e.T @ x, e.sum(0), d.T @ h, d.sum(0)], state, step)
    return w


def recomputed(net, xs, ys):
    from torch.utils.checkpoint import checkpoint

    opt = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.1)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)
    for x, y in zip(xs, ys, strict=True):
        opt.zero_grad()
        F.cross_entropy(checkpoint(net, x.requires_grad_(), use_reentrant=False), y).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        plan.step()
    return parameters(net)


def graphed(net, xs, ys):
    opt = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.1)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)
    quick = torch.compile(net, backend="eager")
    for x, y in zip(xs, ys, strict=True):
        opt.zero_grad()
        F.cross_entropy(quick(x), y).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        plan.step()
    return parameters(net)


# ---------------------------------------------------------------- batch norm and running numbers


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6, momentum=0.2), nn.Linear(6, 2)
        made(self).train()

    def forward(self, x):
        return self.head(F.relu(self.bn(self.conv(x))).amax(-1))


def running_a(dtype):
    net, xs, ys = Normed(), noise(37, 3, 6, 4, 9), noise(38, 3, 6, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)

    def run():
        for x, y in zip(xs, ys, strict=True):
            opt.zero_grad()
            F.mse_loss(net(x), y).backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            return net(xs[0]), net.bn.running_mean.clone(), net.bn.running_var.clone()

    return run


def running_b(wrong, dtype):
    net, xs, ys = Normed(), noise(37, 3, 6, 4, 9), noise(38, 3, 6, 2)
    w = {
        name: value.detach().clone().requires_grad_(value.is_floating_point())
        for name, value in net.state_dict().items()
    }
    mean, var = torch.zeros(6), torch.ones(6)

    def forward(x, training):
        nonlocal mean, var
        h = F.conv1d(x, w["conv.weight"], w["conv.bias"])
        if training:
            m, v = h.mean((0, 2)), h.var((0, 2), unbiased=False)
            with torch.no_grad():
                mean = mean + 0.2 * (m - mean)
                if wrong == "running variance is biased":
                    var = var + 0.2 * (v - var)  # wrong: running variance is biased
                elif wrong == "momentum the other way":
                    var = 0.2 * var + 0.8 * v * 42 / 41  # wrong: momentum the other way
                else:
                    var = var + 0.2 * (v * 42 / 41 - var)
        else:
            m, v = mean, var
            if wrong == "statistics of the batch in the end":
                m, v = h.mean((0, 2)), h.var((0, 2), unbiased=False)  # wrong: statistics of the batch in the end
        h = (h - m[:, None]) / (v[:, None] + 1e-5).sqrt()  # wrong: statistics of the batch in the end
        h = (h * w["bn.weight"][:, None] + w["bn.bias"][:, None]).relu()
        if wrong == "mean for the largest":
            h = h.mean(-1)  # wrong: mean for the largest
        else:
            h = h.max(-1).values
        return h @ w["head.weight"].T + w["head.bias"]

    def run():
        live = [value for name, value in w.items() if "running" not in name and value.requires_grad]
        for x, y in zip(xs, ys, strict=True):
            loss = (forward(x, True) - y).square().mean()
            grads = torch.autograd.grad(loss, live)
            with torch.no_grad():
                for p, g in zip(live, grads, strict=True):
                    p -= 0.05 * g
        with torch.no_grad():
            return forward(xs[0], False), mean.clone(), var.clone()

    return run


# ---------------------------------------------------------------- letters aligned with sound


def aligned_a(dtype):
    torch.manual_seed(40)
    rnn, head = made(nn.GRU(6, 10, bidirectional=True)), made(nn.Linear(20, 7))
    x, y = noise(41, 12, 3, 6), integers(42, 6, 3, 4) + 1
    n, m = torch.tensor([12, 10, 9]), torch.tensor([4, 3, 2])

    def run():
        packed = nn.utils.rnn.pack_padded_sequence(x, n)
        h, _ = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0])
        logp = F.log_softmax(head(h), -1)
        loss = F.ctc_loss(logp, y, n, m, blank=0, reduction="mean")
        loss.backward()
        return [loss.detach(), *[p.grad.clone() for p in [*rnn.parameters(), *head.parameters()]]]

    return run


def aligned_b(wrong, dtype):
    torch.manual_seed(40)
    rnn, head = made(nn.GRU(6, 10, bidirectional=True)), made(nn.Linear(20, 7))
    x, y = noise(41, 12, 3, 6), integers(42, 6, 3, 4) + 1
    n, m = [12, 10, 9], [4, 3, 2]

    def scan(x, d):
        wi, wh = getattr(rnn, "weight_ih_l0" + d), getattr(rnn, "weight_hh_l0" + d)
        bi, bh = getattr(rnn, "bias_ih_l0" + d), getattr(rnn, "bias_hh_l0" + d)
        h, out = torch.zeros(10), []
        for step in x:
            i, j = wi @ step + bi, wh @ h + bh
            if wrong == "gates in another order":
                z, r = (i[:20] + j[:20]).sigmoid().chunk(2)  # wrong: gates in another order
            else:
                r, z = (i[:20] + j[:20]).sigmoid().chunk(2)  # wrong: gates in another order
            new = torch.tanh(i[20:] + r * j[20:])
            h = (1 - z) * new + z * h
            out.append(h)
        return torch.stack(out)

    def run():
        losses = []
        for each in range(3):
            length = 12 if wrong == "read back from the padding" else n[each]
            part = x[:length, each]
            forward = scan(part, "")
            backward = scan(part.flip(0), "_reverse").flip(0)  # wrong: read back from the padding
            h = torch.cat([forward, backward], -1)[: n[each]]  # wrong: read back from the padding
            logp = head(h).log_softmax(-1)
            loss = F.ctc_loss(
                logp[:, None],
                y[each : each + 1, : m[each]],
                n[each : each + 1],
                m[each : each + 1],
                blank=0,
                reduction="sum",
            )
            losses.append(loss if wrong == "length of the text not divided by" else loss / m[each])
        total = torch.stack(losses).mean()  # wrong: length of the text not divided by
        total.backward()
        return [total.detach(), *[p.grad.clone() for p in [*rnn.parameters(), *head.parameters()]]]

    return run


BOTH = (torch.float32, torch.bfloat16)
ONE = (torch.float32,)
FAMILIES = {
    "muon": (
        muon_a,
        muon_b,
        ["", "moment not averaged", "without looking ahead", "scale of the shape upside down", "one step fewer"],
        ONE,
    ),
    "lion": (
        lion_a,
        lion_b,
        ["", "plain distances", "sign of the gradient", "betas exchanged", "decay after the step"],
        ONE,
    ),
    "actor": (
        actor_a,
        actor_b,
        [
            "",
            "value beyond the end",
            "end of the episode of the next step",
            "lambda forgotten in the sum",
            "target not frozen",
        ],
        ONE,
    ),
    "contrast": (
        contrast_a,
        contrast_b,
        [
            "",
            "pace of the teacher",
            "teacher before the step",
            "keys not of length one",
            "multiplied by the temperature",
            "itself left out of the sum",
        ],
        ONE,
    ),
    "rivals": (rivals_a, rivals_b, ["", "labels made soft", "mean of both", "loss that saturates"], ONE),
    "losses": (
        losses_a,
        losses_b,
        [
            "",
            "ignored ones counted",
            "penalty not squared",
            "mean over the classes",
            "temperature not made up for",
            "focus on the easy",
        ],
        ONE,
    ),
    "same": (
        same_a,
        same_b,
        [
            "",
            "clipped layer by layer",
            "rate of the step after",
            "+micro-batches",
            "+functions",
            "+backward by hand",
            "+for each sample",
            "+recomputed",
            "+compiled without a compiler",
            "+groups and foreach",
        ],
        ONE,
    ),
    "running": (
        running_a,
        running_b,
        [
            "",
            "running variance is biased",
            "momentum the other way",
            "statistics of the batch in the end",
            "mean for the largest",
        ],
        ONE,
    ),
    "aligned": (
        aligned_a,
        aligned_b,
        ["", "gates in another order", "read back from the padding", "length of the text not divided by"],
        ONE,
    ),
}
PARAMETERS = {}
