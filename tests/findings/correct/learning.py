"""Reinforcement learning, distillation, contrastive and meta-learning, adapters, experts, mixed precision."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import Categorical, Normal


def reinforce():
    policy = nn.Sequential(nn.Linear(4, 16), nn.Dropout(p=0.6), nn.ReLU(), nn.Linear(16, 2), nn.Softmax(dim=1))
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(2):
        log_probs, rewards = [], []
        state = torch.randn(1, 4)
        for _ in range(5):
            m = Categorical(policy(state))
            action = m.sample()
            log_probs.append(m.log_prob(action))
            rewards.append(float(action.item()))
            state = torch.randn(1, 4)
        returns, r = [], 0.0
        for reward in rewards[::-1]:
            r = reward + 0.99 * r
            returns.insert(0, r)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = [-log_prob * value for log_prob, value in zip(log_probs, returns)]
        optimizer.zero_grad()
        torch.cat(loss).sum().backward()
        optimizer.step()


def actor_critic():
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.affine, self.action, self.value = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)

        def forward(self, x):
            x = F.relu(self.affine(x))
            return F.softmax(self.action(x), dim=-1), self.value(x)

    model = Policy()
    optimizer = optim.Adam(model.parameters(), lr=3e-2)
    for _ in range(2):
        saved, rewards = [], []
        for _ in range(4):
            probs, value = model(torch.randn(4))
            m = Categorical(probs)
            action = m.sample()
            saved.append((m.log_prob(action), value))
            rewards.append(1.0)
        returns = torch.tensor([4.0, 3.0, 2.0, 1.0])
        returns = (returns - returns.mean()) / returns.std()
        policy_losses, value_losses = [], []
        for (log_prob, value), r in zip(saved, returns):
            policy_losses.append(-log_prob * (r - value.item()))
            value_losses.append(F.smooth_l1_loss(value, torch.tensor([r])))
        optimizer.zero_grad()
        loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
        loss.backward()
        optimizer.step()


def dqn():
    policy_net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    target_net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = optim.AdamW(policy_net.parameters(), lr=1e-4, amsgrad=True)
    for _ in range(3):
        with torch.no_grad():
            action = policy_net(torch.randn(1, 4)).max(1).indices.view(1, 1)
        states, actions = torch.randn(8, 4), torch.randint(0, 2, (8, 1))
        actions[0] = action[0]
        values = policy_net(states).gather(1, actions)
        next_values = torch.zeros(8)
        mask = torch.rand(8) > 0.2
        with torch.no_grad():
            next_values[mask] = target_net(torch.randn(int(mask.sum()), 4)).max(1).values
        expected = next_values * 0.99 + torch.ones(8)
        loss = nn.SmoothL1Loss()(values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
        target, source = target_net.state_dict(), policy_net.state_dict()
        for key in source:
            target[key] = source[key] * 0.005 + target[key] * 0.995
        target_net.load_state_dict(target)


def ppo():
    actor, critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), nn.Linear(3, 1)
    log_std = nn.Parameter(torch.zeros(1, 2))
    optimizer = optim.Adam([*actor.parameters(), *critic.parameters(), log_std], lr=3e-4, eps=1e-5)
    obs, actions, logprobs, values = torch.zeros(8, 3), torch.zeros(8, 2), torch.zeros(8), torch.zeros(8)
    for _ in range(2):
        for step in range(8):
            obs[step] = torch.randn(3)
            with torch.no_grad():
                mean = actor(obs[step : step + 1])
                dist = Normal(mean, log_std.expand_as(mean).exp())
                action = dist.sample()
                actions[step], logprobs[step] = action[0], dist.log_prob(action).sum(1)[0]
                values[step] = critic(obs[step : step + 1]).flatten()[0]
        with torch.no_grad():
            rewards, advantages, last = torch.randn(8), torch.zeros(8), 0
            for t in reversed(range(7)):
                delta = rewards[t] + 0.99 * values[t + 1] - values[t]
                advantages[t] = last = delta + 0.95 * 0.99 * last
            returns = advantages + values
        for _ in range(2):
            idx = torch.randperm(8)[:4]
            mean = actor(obs[idx])
            dist = Normal(mean, log_std.expand_as(mean).exp())
            newlog = dist.log_prob(actions[idx]).sum(1)
            ratio = (newlog - logprobs[idx]).exp()
            adv = advantages[idx]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            pg = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
            v = critic(obs[idx]).view(-1)
            loss = pg + 0.5 * ((v - returns[idx]) ** 2).mean() - 0.01 * dist.entropy().sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
            optimizer.step()


def ddpg():
    actor, critic = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1), nn.Tanh()), nn.Linear(4, 1)
    actor_t, critic_t = copy.deepcopy(actor), copy.deepcopy(critic)
    opt_a, opt_c = optim.Adam(actor.parameters()), optim.Adam(critic.parameters())
    for _ in range(3):
        s, a, r, s2 = torch.randn(8, 3), torch.randn(8, 1), torch.randn(8, 1), torch.randn(8, 3)
        target = r + 0.99 * critic_t(torch.cat([s2, actor_t(s2)], 1)).detach()
        opt_c.zero_grad()
        F.mse_loss(critic(torch.cat([s, a], 1)), target).backward()
        opt_c.step()
        opt_a.zero_grad()
        (-critic(torch.cat([s, actor(s)], 1)).mean()).backward()
        opt_a.step()
        for net, slow in ((actor, actor_t), (critic, critic_t)):
            for p, q in zip(net.parameters(), slow.parameters()):
                q.data.copy_(0.005 * p.data + 0.995 * q.data)


def distillation():
    teacher, student = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)), nn.Linear(4, 3)
    teacher.eval()
    optimizer, T = optim.Adam(student.parameters()), 4.0
    for _ in range(3):
        x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
        with torch.no_grad():
            teacher_logits = teacher(x)
        logits = student(x)
        soft = F.kl_div(F.log_softmax(logits / T, dim=1), F.softmax(teacher_logits / T, dim=1), reduction="batchmean")
        loss = 0.5 * soft * T * T + 0.5 * F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def distillation_by_hand():
    teacher, student = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer = optim.SGD(student.parameters(), lr=0.1)
    for _ in range(2):
        x = torch.randn(8, 4)
        with torch.no_grad():
            targets = nn.functional.softmax(teacher(x) / 2, dim=-1)
        prob = nn.functional.log_softmax(student(x) / 2, dim=-1)
        loss = torch.sum(targets * (targets.log() - prob)) / prob.size()[0] * 4
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def mean_teacher():
    student = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.detach_()
    optimizer = optim.SGD(student.parameters(), 0.1)
    for step in range(3):
        x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
        logits = student(x)
        with torch.no_grad():
            target = teacher(x + 0.1 * torch.randn_like(x))
        loss = F.cross_entropy(logits, y) + F.mse_loss(logits.softmax(1), target.softmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        alpha = min(1 - 1 / (step + 1), 0.99)
        for e, p in zip(teacher.parameters(), student.parameters()):
            e.data.mul_(alpha).add_(p.data, alpha=1 - alpha)


def byol():
    online = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    predictor = nn.Linear(4, 4)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = optim.SGD([*online.parameters(), *predictor.parameters()], 0.1)
    for _ in range(3):
        a, b = torch.randn(8, 6), torch.randn(8, 6)
        pa, pb = F.normalize(predictor(online(a)), dim=1), F.normalize(predictor(online(b)), dim=1)
        with torch.no_grad():
            ta, tb = F.normalize(target(a), dim=1), F.normalize(target(b), dim=1)
        loss = (2 - 2 * (pa * tb).sum(-1) + 2 - 2 * (pb * ta).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(online.parameters(), target.parameters()):
                q.lerp_(p, 0.01)


def simsiam():
    encoder, predictor = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8)), nn.Linear(8, 8)
    optimizer = optim.SGD([*encoder.parameters(), *predictor.parameters()], 0.05)
    cos = nn.CosineSimilarity(dim=1)
    for _ in range(2):
        z1, z2 = encoder(torch.randn(8, 6)), encoder(torch.randn(8, 6))
        loss = -(cos(predictor(z1), z2.detach()).mean() + cos(predictor(z2), z1.detach()).mean()) * 0.5
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def simclr():
    encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = optim.Adam(encoder.parameters(), 3e-4, weight_decay=1e-4)
    for _ in range(2):
        features = F.normalize(encoder(torch.randn(16, 6)), dim=1)
        labels = torch.cat([torch.arange(8) for _ in range(2)], dim=0)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        similarity = torch.matmul(features, features.T)
        mask = torch.eye(16, dtype=torch.bool)
        labels = labels[~mask].view(16, -1)
        similarity = similarity[~mask].view(16, -1)
        positives = similarity[labels.bool()].view(16, -1)
        negatives = similarity[~labels.bool()].view(16, -1)
        logits = torch.cat([positives, negatives], dim=1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(16, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def clip():
    image, text = nn.Linear(6, 4), nn.Linear(5, 4)
    scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))
    optimizer = optim.AdamW([*image.parameters(), *text.parameters(), scale])
    for _ in range(2):
        i, t = image(torch.randn(8, 6)), text(torch.randn(8, 5))
        i, t = i / i.norm(dim=-1, keepdim=True), t / t.norm(dim=-1, keepdim=True)
        logits = scale.exp() * i @ t.t()
        labels = torch.arange(8)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            scale.clamp_(0, math.log(100))


def moco():
    q_enc, k_enc = nn.Linear(6, 4), nn.Linear(6, 4)
    for p, k in zip(q_enc.parameters(), k_enc.parameters()):
        k.data.copy_(p.data)
        k.requires_grad = False
    queue, pointer = F.normalize(torch.randn(4, 16), dim=0), 0
    optimizer = optim.SGD(q_enc.parameters(), 0.03)
    for _ in range(3):
        q = F.normalize(q_enc(torch.randn(8, 6)), dim=1)
        with torch.no_grad():
            for p, k in zip(q_enc.parameters(), k_enc.parameters()):
                k.data = k.data * 0.999 + p.data * 0.001
            keys = F.normalize(k_enc(torch.randn(8, 6)), dim=1)
        l_pos = torch.einsum("nc,nc->n", [q, keys]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(8, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue[:, pointer : pointer + 8] = keys.T
        pointer = (pointer + 8) % 16


def siamese_with_triplets():
    net = nn.Sequential(nn.Linear(6, 8), nn.PReLU(), nn.Linear(8, 2))
    optimizer = optim.Adam(net.parameters())
    for _ in range(2):
        a, p, n = net(torch.randn(4, 6)), net(torch.randn(4, 6)), net(torch.randn(4, 6))
        loss = F.triplet_margin_loss(a, p, n)
        d = (a.unsqueeze(1) - n.unsqueeze(0)).pow(2).sum(2)
        loss = loss + F.relu(1 - d).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def lora():
    class LoRA(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a, self.b = nn.Parameter(torch.randn(2, 8) * 0.01), nn.Parameter(torch.zeros(8, 2))
            self.dropout = nn.Dropout(0.05)

        def forward(self, x):
            return self.base(x) + self.dropout(x) @ self.a.T @ self.b.T * 2

    model = nn.Sequential(LoRA(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3).requires_grad_(False))
    optimizer = optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
    for _ in range(3):
        loss = F.cross_entropy(model(torch.randn(8, 8)), torch.randint(0, 3, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def prompt_tuning():
    body, head = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 3)
    prompt = nn.Parameter(torch.randn(4, 8))
    optimizer = optim.Adam([{"params": [prompt], "lr": 0.1}, {"params": head.parameters()}])
    for _ in range(2):
        x = torch.cat([prompt.unsqueeze(0).expand(5, -1, -1), torch.randn(5, 6, 8)], dim=1)
        loss = F.cross_entropy(head(torch.tanh(body(x)).mean(1)), torch.randint(0, 3, (5,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def mixture_of_experts():
    class MoE(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 4, bias=False)
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4))

        def forward(self, x):
            flat = x.view(-1, x.shape[-1])
            logits = self.gate(flat)
            weights, chosen = torch.topk(logits, 2)
            weights = F.softmax(weights, dim=1, dtype=torch.float).to(x.dtype)
            out = torch.zeros_like(flat)
            for i, expert in enumerate(self.experts):
                batch, nth = torch.where(chosen == i)
                out[batch] += weights[batch, nth, None] * expert(flat[batch])
            probs = logits.softmax(-1)
            usage = F.one_hot(chosen[:, 0], 4).float().mean(0)
            return out.view_as(x), (probs.mean(0) * usage).sum() * 4

    model, head = MoE(), nn.Linear(8, 3)
    optimizer = optim.Adam([*model.parameters(), *head.parameters()])
    for _ in range(2):
        y, aux = model(torch.randn(3, 5, 8))
        loss = F.cross_entropy(head(y).flatten(0, 1), torch.randint(0, 3, (15,))) + 0.01 * aux
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def mixed_precision():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))
    optimizer, scaler = optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
    for step in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(torch.randn(6, 8))
            loss = F.cross_entropy(out, torch.randint(0, 3, (6,))) / 2
        scaler.scale(loss).backward()
        if step % 2 == 1:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def maml():
    weights = [
        nn.Parameter(torch.randn(8, 1) * 0.1),
        nn.Parameter(torch.zeros(8)),
        nn.Parameter(torch.randn(1, 8) * 0.1),
    ]
    optimizer = optim.Adam(weights, 1e-2)

    def net(x, w):
        return F.linear(torch.relu(F.linear(x, w[0], w[1])), w[2])

    for _ in range(2):
        meta = 0.0
        for _ in range(3):
            x, xq = torch.randn(5, 1), torch.randn(5, 1)
            loss = F.mse_loss(net(x, weights), x.sin())
            grads = torch.autograd.grad(loss, weights, create_graph=True)
            fast = [w - 0.1 * g for w, g in zip(weights, grads)]
            meta = meta + F.mse_loss(net(xq, fast), xq.sin())
        optimizer.zero_grad()
        meta.backward()
        optimizer.step()


def reptile_manual_updates():
    model = nn.Linear(1, 1)
    for _ in range(3):
        before = copy.deepcopy(model.state_dict())
        for _ in range(2):
            x = torch.randn(4, 1)
            model.zero_grad()
            F.mse_loss(model(x), 2 * x).backward()
            for p in model.parameters():
                p.data -= 0.02 * p.grad.data
        after = model.state_dict()
        model.load_state_dict({k: before[k] + (after[k] - before[k]) * 0.1 for k in before})


def graph_network():
    w1, w2 = nn.Linear(6, 8), nn.Linear(8, 3)
    adj = (torch.rand(10, 10) > 0.6).float()
    adj = ((adj + adj.T) > 0).float() + torch.eye(10)
    d = adj.sum(1).pow(-0.5)
    adj = d[:, None] * adj * d[None, :]
    x, y, train = torch.randn(10, 6), torch.randint(0, 3, (10,)), torch.arange(10) < 6
    optimizer = optim.Adam([*w1.parameters(), *w2.parameters()], weight_decay=5e-4)
    for _ in range(3):
        optimizer.zero_grad()
        h = F.dropout(F.relu(adj @ w1(x)), 0.5, training=True)
        out = F.log_softmax(adj @ w2(h), dim=1)
        F.nll_loss(out[train], y[train]).backward()
        optimizer.step()


def graph_attention():
    w, a = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(8, 1))
    adj = (torch.rand(7, 7) > 0.5).float() + torch.eye(7)
    optimizer = optim.Adam([w, a])
    for _ in range(2):
        h = torch.randn(7, 6) @ w
        e = F.leaky_relu((h @ a[:4]) + (h @ a[4:]).T, 0.2)
        attention = F.softmax(torch.where(adj > 0, e, -9e15 * torch.ones_like(e)), dim=1)
        loss = F.elu(attention @ h).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def matrix_factorisation():
    users, items = nn.Embedding(10, 4), nn.Embedding(12, 4)
    bu, bi = nn.Embedding(10, 1), nn.Embedding(12, 1)
    modules = nn.ModuleList([users, items, bu, bi])
    optimizer = optim.Adam(modules.parameters(), weight_decay=1e-5)
    for _ in range(3):
        u, i, r = torch.randint(0, 10, (16,)), torch.randint(0, 12, (16,)), torch.rand(16)
        pred = (users(u) * items(i)).sum(1) + bu(u).squeeze() + bi(i).squeeze()
        loss = F.mse_loss(pred, r)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def linear_regression_with_lbfgs():
    w = torch.zeros(3, 1, requires_grad=True)
    x = torch.randn(20, 3)
    y = x @ torch.tensor([[1.0], [2.0], [3.0]])
    optimizer = optim.LBFGS([w], line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = ((x @ w - y) ** 2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)


def slot_attention():
    q, k, v, gru = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.GRUCell(8, 8)
    mu = nn.Parameter(torch.randn(1, 1, 8))
    params = [p for m in (q, k, v, gru) for p in m.parameters()] + [mu]
    optimizer = optim.Adam(params)
    x = torch.randn(3, 9, 8)
    slots = mu.expand(3, 4, -1) + torch.randn(3, 4, 8)
    keys, values = k(x), v(x)
    for _ in range(2):
        dots = torch.einsum("bid,bjd->bij", q(slots), keys) * 8**-0.5
        attn = dots.softmax(dim=1) + 1e-8
        attn = attn / attn.sum(dim=-1, keepdim=True)
        updates = torch.einsum("bjd,bij->bid", values, attn)
        slots = gru(updates.reshape(-1, 8), slots.reshape(-1, 8)).reshape(3, 4, 8)
    slots.pow(2).mean().backward()
    optimizer.step()


def linear_attention():
    qkv = nn.Linear(8, 24)
    optimizer = optim.SGD(qkv.parameters(), 0.1)
    q, k, v = qkv(torch.randn(2, 10, 8)).chunk(3, dim=-1)
    q, k = q.softmax(dim=-1), k.softmax(dim=-2)
    context = k.transpose(1, 2) @ v
    (q @ context).pow(2).mean().backward()
    optimizer.step()


def attention_pooling():
    score, head = nn.Linear(8, 1), nn.Linear(8, 2)
    optimizer = optim.Adam([*score.parameters(), *head.parameters()])
    for n in (5, 1, 7):
        bag = torch.randn(n, 8)
        a = F.softmax(score(bag).transpose(1, 0), dim=1)
        logits = head(torch.mm(a, bag))
        loss = F.cross_entropy(logits, torch.tensor([1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def multi_task_with_uncertainty():
    trunk, a, b = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1)
    log_vars = nn.Parameter(torch.zeros(2))
    optimizer = optim.Adam([*trunk.parameters(), *a.parameters(), *b.parameters(), log_vars])
    for _ in range(3):
        h = F.relu(trunk(torch.randn(8, 6)))
        la = F.cross_entropy(a(h), torch.randint(0, 3, (8,)))
        lb = F.mse_loss(b(h).squeeze(-1), torch.randn(8))
        loss = (torch.stack([la, lb]) * torch.exp(-log_vars) + log_vars).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def stochastic_weight_averaging():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    average = optim.swa_utils.AveragedModel(model)
    optimizer = optim.SGD(model.parameters(), 0.1)
    data = [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(2)]
    for _ in range(2):
        for x, y in data:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        average.update_parameters(model)
    optim.swa_utils.update_bn(data, average)
    average.eval()
    with torch.no_grad():
        print((average(data[0][0]).argmax(1) == data[0][1]).float().mean().item())


def gradient_checkpointing():
    from torch.utils.checkpoint import checkpoint

    blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.1)) for _ in range(3))
    head = nn.Linear(8, 2)
    optimizer = optim.AdamW([*blocks.parameters(), *head.parameters()])
    for _ in range(2):
        x = torch.randn(4, 8)
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        loss = F.cross_entropy(head(x), torch.randint(0, 2, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def early_stopping_with_best_state():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = optim.Adam(model.parameters())
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    best, state, bad = math.inf, None, 0
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    for _ in range(4):
        model.train()
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            val = F.mse_loss(model(x), y).item()
        scheduler.step(val)
        if val < best:
            best, state, bad = val, {k: v.clone() for k, v in model.state_dict().items()}, 0
        else:
            bad += 1
    model.load_state_dict(state)


def custom_autograd_function():
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x > 0).float()

        @staticmethod
        def backward(ctx, g):
            return g

    a, b = nn.Linear(4, 8), nn.Linear(8, 2)
    optimizer = optim.Adam([*a.parameters(), *b.parameters()])
    for _ in range(2):
        loss = F.cross_entropy(b(Straight.apply(a(torch.randn(8, 4)))), torch.randint(0, 2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def transformers_bert_trainer():
    transformers = __import__("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config)
    model.train()
    optimizer = optim.AdamW(model.parameters(), 1e-4)
    for _ in range(2):
        ids = torch.randint(0, 50, (4, 9))
        out = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=torch.randint(0, 3, (4,)))
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        print(model(input_ids=ids).logits.argmax(-1).tolist())


def transformers_causal_model():
    transformers = __import__("transformers")
    config = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    model = transformers.GPT2LMHeadModel(config).train()
    optimizer = optim.AdamW(model.parameters(), 1e-4)
    for _ in range(2):
        ids = torch.randint(0, 40, (3, 10))
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def transformers_llama():
    transformers = __import__("transformers")
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).train()
    optimizer = optim.AdamW(model.parameters(), 1e-4)
    for _ in range(2):
        ids = torch.randint(0, 40, (3, 10))
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def masked_softmax_of_a_library():
    q = nn.Linear(4, 4)
    x, mask = torch.randn(2, 6, 4), (torch.rand(2, 1, 6) > 0.3).float()
    scores = torch.bmm(q(x), x.transpose(1, 2))
    result = F.softmax(scores * mask, dim=-1) * mask
    result = result / (result.sum(dim=-1, keepdim=True) + 1e-13)
    (result @ x).mean().backward()


def one_hot_of_the_largest():
    p = F.softmax(nn.Linear(4, 3)(torch.randn(8, 4)), dim=1)
    hard = (p == p.max(dim=1, keepdim=True)[0]).float()
    (hard - p.detach() + p).sum().backward()


def centre_of_the_batch():
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1, enable_nested_tensor=False
    )
    head, centre = nn.Linear(8, 3), torch.zeros(1, 6, 8)
    optimizer = optim.AdamW([*encoder.parameters(), *head.parameters()])
    for _ in range(2):
        out = encoder(torch.randn(4, 6, 8))
        loss = F.cross_entropy(head(out[:, 0] - centre[:, 0]), torch.randint(0, 3, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        centre = centre * 0.9 + out.detach().mean(dim=0, keepdim=True) * 0.1


def monte_carlo_by_functional_dropout():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.drop, self.b = nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3)

        def forward(self, x):
            return self.b(F.dropout(self.drop(self.a(x)), 0.2))

    model, x, y = Net().eval(), torch.randn(8, 4), torch.randint(0, 3, (8,))
    with torch.no_grad():
        votes = torch.stack([model(x).argmax(1) for _ in range(5)])
    print((votes.mode(0).values == y).sum().item())
