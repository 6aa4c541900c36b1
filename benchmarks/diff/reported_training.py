"""Mistakes that public bug reports tell of, rebuilt small: training loops, accumulation, losses and returns."""

import math

import torch
import torch.nn.functional as F
from reported import seeded
from torch import nn

STEPS = 4


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(30, 16), nn.Embedding(12, 16)
        self.ln_1, self.ln_2, self.ln_f = nn.LayerNorm(16), nn.LayerNorm(16), nn.LayerNorm(16)
        self.c_attn, self.c_proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.c_fc, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.lm_head = nn.Linear(16, 30, bias=False)
        seeded(101, self).train()
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        n = ids.shape[1]
        x = self.wte(ids) + self.wpe(torch.arange(n))  # wrong: head not tied
        q, k, v = self.c_attn(self.ln_1(x)).split(16, dim=2)
        q, k, v = (t.view(-1, n, 2, 8).transpose(1, 2) for t in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(8))
        att = att.masked_fill(torch.tril(torch.ones(n, n)) == 0, float("-inf"))
        x = x + self.c_proj((F.softmax(att, dim=-1) @ v).transpose(1, 2).contiguous().view(x.shape))
        x = x + self.down(F.gelu(self.c_fc(self.ln_2(x))))
        return self.lm_head(self.ln_f(x))


def texts() -> list[torch.Tensor]:
    torch.manual_seed(102)
    found = []
    for _ in range(STEPS):
        ids = torch.randint(1, 30, (4, 9))
        ids[0, 5:] = 0
        ids[1, 8:] = 0
        found.append(ids)
    return found


def groups(model: nn.Module, everything: bool) -> list[dict]:
    named = list(model.named_parameters())
    decayed = [p for _, p in named if p.dim() >= 2 or everything]
    rest = [p for _, p in named if p.dim() < 2 and not everything]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


def train_a() -> list:
    model = Tiny()
    optimizer = torch.optim.AdamW(groups(model, False), lr=3e-3, betas=(0.9, 0.95), eps=1e-6)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    average = {name: value.detach().clone() for name, value in model.named_parameters()}
    for ids in texts():
        labels = ids.masked_fill(ids == 0, -100)
        logits = model(ids)
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, 30), labels[:, 1:].reshape(-1), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # wrong: warm-up from zero
        schedule.step()
        with torch.no_grad():
            for name, value in model.named_parameters():
                average[name].mul_(0.9).add_(value, alpha=0.1)
    return [*model.parameters(), *average.values()]


class Sdpa(Tiny):
    """The same model, written anew."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        b, n = ids.shape
        h = F.embedding(ids, self.wte.weight) + self.wpe.weight[:n]
        qkv = self.c_attn(self.ln_1(h)).view(b, n, 3, 2, 8).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        h = h + self.c_proj(o.transpose(1, 2).flatten(2))
        h = h + self.down(F.gelu(self.c_fc(self.ln_2(h))))
        return self.ln_f(h) @ self.lm_head.weight.t()


def train_b(wrong: str) -> list:
    net = Sdpa()
    if wrong == "head not tied":
        net.lm_head.weight = nn.Parameter(net.wte.weight.detach().clone())
    opt = torch.optim.AdamW(
        groups(net, wrong == "norms decayed"), lr=3e-3, betas=(0.9, 0.95), eps=1e-6
    )  # wrong: norms decayed
    ema = {name: value.detach().clone() for name, value in net.named_parameters()}
    for step, ids in enumerate(texts()):
        for group in opt.param_groups:
            group["lr"] = 3e-3 * min(
                1.0, (step + (0 if wrong == "warm-up from zero" else 1)) / 3
            )  # wrong: warm-up from zero
        y = ids.where(ids != 0, -100)
        opt.zero_grad(set_to_none=True)
        if wrong in ("+accumulated by tokens", "accumulated by micro-batches", "accumulated and clipped each time"):
            total = (y[:, 1:] != -100).sum()
            for part in range(2):
                x, t = ids[2 * part : 2 * part + 2], y[2 * part : 2 * part + 2, 1:]
                logits = net(x)[:, :-1]
                if wrong == "accumulated by micro-batches":
                    loss = F.cross_entropy(logits.flatten(0, 1), t.flatten()) / 2  # wrong: accumulated by micro-batches
                else:
                    loss = (
                        F.cross_entropy(logits.flatten(0, 1), t.flatten(), reduction="sum") / total
                    )  # wrong: accumulated by micro-batches
                loss.backward()
                if wrong == "accumulated and clipped each time":
                    nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # wrong: accumulated and clipped each time
        else:
            logits = net(ids)
            if wrong == "labels not shifted":
                loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())  # wrong: labels not shifted
            elif wrong == "labels shifted twice":
                loss = F.cross_entropy(logits[:, :-2].flatten(0, 1), y[:, 2:].flatten())  # wrong: labels shifted twice
            elif wrong == "padding learnt":
                loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())  # wrong: padding learnt
            else:
                loss = F.cross_entropy(
                    logits[:, :-1].flatten(0, 1), y[:, 1:].flatten()
                )  # wrong: labels not shifted, labels shifted twice, padding learnt
            loss.backward()
        if wrong == "clipped to another norm":
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)  # wrong: clipped to another norm
        else:
            nn.utils.clip_grad_norm_(
                net.parameters(), 1.0
            )  # wrong: clipped to another norm, accumulated and clipped each time
        if wrong == "+steps by hand":
            by_hand(opt)
        else:
            opt.step()  # wrong: norms decayed, warm-up from zero
        with torch.no_grad():
            for name, value in net.named_parameters():
                if wrong == "average the other way round":
                    ema[name].lerp_(value, 0.9)  # wrong: average the other way round
                else:
                    ema[name].lerp_(value, 0.1)  # wrong: average the other way round
    return [*net.parameters(), *ema.values()]


def by_hand(opt: torch.optim.Optimizer) -> None:
    with torch.no_grad():
        for group in opt.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = opt.state[p]
                n = state["n"] = state.get("n", 0) + 1
                m = state.setdefault("m", torch.zeros_like(p))
                v = state.setdefault("v", torch.zeros_like(p))
                p -= group["lr"] * group["weight_decay"] * p
                m.copy_(b1 * m + (1 - b1) * p.grad)
                v.copy_(b2 * v + (1 - b2) * p.grad**2)
                p -= group["lr"] * (m / (1 - b1**n)) / ((v / (1 - b2**n)).sqrt() + group["eps"])


TINY = [
"", "+accumulated by tokens", "+steps by hand", "accumulated by micro-batches", "accumulated and clipped each time", "labels not shifted",
        "labels shifted twice", "padding learnt", "clipped to another norm", "norms decayed", "warm-up from zero",
        "average the other way round", "head not tied",
]  # fmt: skip


# ---------------------------------------------------------------- policies: returns, ratios, distillation


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.pi, self.value = nn.Linear(10, 24), nn.Linear(24, 5), nn.Linear(24, 1)
        seeded(111, self).train()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.tanh(self.body(x))
        return self.pi(h), self.value(h).squeeze(-1)


def episode() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(112)
    seen, actions = torch.randn(12, 10), torch.randint(0, 5, (12,))
    rewards, done = torch.randn(12), (torch.rand(12) < 0.25).float()
    old = torch.log_softmax(torch.randn(12, 5), -1).gather(1, actions[:, None]).squeeze(1)
    return seen, actions, rewards, done, old


def policy_a() -> list:
    actor, (seen, actions, rewards, done, old) = Actor(), episode()
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
    for _ in range(2):
        logits, values = actor(seen)
        advantages, last = torch.zeros(12), torch.zeros(())
        with torch.no_grad():
            for t in reversed(range(12)):
                following = values[t + 1] if t < 11 else torch.zeros(())
                delta = rewards[t] + 0.99 * following * (1 - done[t]) - values[t]
                last = delta + 0.99 * 0.95 * (1 - done[t]) * last
                advantages[t] = last
            returns = advantages + values
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        chosen = torch.log_softmax(logits, -1).gather(1, actions[:, None]).squeeze(1)
        ratio = torch.exp(chosen - old)
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        probabilities = torch.softmax(logits, -1)
        entropy = -(probabilities * torch.log(probabilities)).sum(-1).mean()
        loss = loss + 0.5 * F.mse_loss(values, returns) - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return list(actor.parameters())


def policy_b(wrong: str) -> list:
    net, (obs, act, rew, end, old) = Actor(), episode()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(2):
        pi = torch.distributions.Categorical(logits=net(obs)[0])
        v = net(obs)[1]
        keep = 1 - end
        if wrong == "end of the step before":
            keep = torch.cat([torch.ones(1), keep[:-1]])  # wrong: end of the step before
        nv = torch.cat([v.detach()[1:], torch.zeros(1)])
        delta = rew + 0.99 * nv * keep - v.detach()  # wrong: end of the step before
        adv = []
        running = torch.zeros(())
        lam = 0.99 if wrong == "lambda forgotten" else 0.99 * 0.95
        for d, k in zip(delta.flip(0), keep.flip(0), strict=True):
            running = d + lam * k * running  # wrong: lambda forgotten
            adv.append(running)
        adv = torch.stack(adv[::-1])
        ret = adv + v.detach()
        if wrong == "advantages not normalised":
            norm = adv
        elif wrong == "deviation of the population":
            norm = (adv - adv.mean()) / (adv.std(unbiased=False) + 1e-8)  # wrong: deviation of the population
        else:
            norm = (adv - adv.mean()) / (adv.std() + 1e-8)  # wrong: deviation of the population
        r = (pi.log_prob(act) - old).exp()
        if wrong == "maximum for minimum":
            policy = -torch.max(r * norm, r.clamp(0.8, 1.2) * norm).mean()  # wrong: maximum for minimum
        elif wrong == "clipped ratio only":
            policy = -(r.clamp(0.8, 1.2) * norm).mean()  # wrong: clipped ratio only
        else:
            policy = torch.max(
                -r * norm, -r.clamp(0.8, 1.2) * norm
            ).mean()  # wrong: maximum for minimum, clipped ratio only, advantages not normalised
        value = (
            F.smooth_l1_loss(v, ret) if wrong == "huber for squares" else (v - ret).square().mean()
        )  # wrong: huber for squares
        sign = 1 if wrong == "entropy punished" else -1
        total = policy + 0.5 * value + sign * 0.01 * pi.entropy().mean()  # wrong: entropy punished
        opt.zero_grad()
        total.backward()
        opt.step()
    return list(net.parameters())


POLICY = ["", "end of the step before", "lambda forgotten", "advantages not normalised", "deviation of the population",
          "maximum for minimum", "clipped ratio only", "huber for squares", "entropy punished"]  # fmt: skip
