"""Bugs that people reported in public repositories, rebuilt as small programs; each with the fixed program."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim


def mlp(i, o, h=16):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, o))


class FCSN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(8, 16, 3, padding=1)
        self.conv2 = nn.Conv1d(16, 2, 1)

    def forward(self, x):
        return self.conv2(F.relu(self.conv1(x)))


def _classes_of_a_sequence(fixed):
    net = FCSN()
    opt = optim.SGD(net.parameters(), 0.01)
    for _ in range(3):
        x, y = torch.randn(4, 8, 10), torch.randint(0, 2, (4, 10))
        score = net(x)
        if fixed:
            log_p = torch.log_softmax(score, dim=1).permute(0, 2, 1).reshape(-1, 2)
        else:
            log_p = torch.log_softmax(score, dim=1).reshape(-1, 2)  # finds: view-for-transpose [classes_of_a_sequence]
        loss = F.nll_loss(log_p, y.view(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()


def classes_of_a_sequence():  # [classes_of_a_sequence]
    _classes_of_a_sequence(False)


def classes_of_a_sequence_fixed():
    _classes_of_a_sequence(True)


def _classes_of_pixels(fixed):
    student, teacher = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(3, 5, 3, padding=1)
    opt = optim.SGD(student.parameters(), 0.01)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 6)
        with torch.no_grad():
            preds_T = teacher(x)
        preds_S = student(x)
        N, C, W, H = preds_S.shape
        if fixed:
            soft_T = F.softmax(preds_T.permute(0, 2, 3, 1).contiguous().view(-1, C), dim=1)
            log_S = F.log_softmax(preds_S.permute(0, 2, 3, 1).contiguous().view(-1, C), dim=1)
        else:
            soft_T = F.softmax(preds_T.view(-1, C), dim=1)  # finds: view-for-transpose [classes_of_pixels]
            log_S = F.log_softmax(preds_S.view(-1, C), dim=1)  # finds: view-for-transpose [classes_of_pixels]
        loss = (torch.sum(-soft_T * log_S)) / W / H
        opt.zero_grad()
        loss.backward()
        opt.step()


def classes_of_pixels():  # [classes_of_pixels]
    _classes_of_pixels(False)


def classes_of_pixels_fixed():
    _classes_of_pixels(True)


class Sep(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed
        self.conv = nn.Conv2d(2, 8, 3, padding=1)
        self.lstm = nn.LSTM(8 * 7, 12, batch_first=True)
        self.fc = nn.Linear(12, 4)

    def forward(self, x):
        h = F.relu(self.conv(x))  # B 8 T 7
        B, C, T, Q = h.shape
        if self.fixed:
            h = h.permute(0, 2, 1, 3).reshape(B, T, C * Q)
        else:
            h = h.view(B, -1, T, 1).squeeze(3).transpose(1, 2)  # finds: view-for-transpose [channels_into_features]
        out, _ = self.lstm(h)
        return self.fc(out)


def _channels_into_features(fixed):
    net = Sep(fixed)
    opt = optim.Adam(net.parameters())
    for _ in range(3):
        loss = F.mse_loss(net(torch.randn(2, 2, 10, 7)), torch.randn(2, 10, 4))
        opt.zero_grad()
        loss.backward()
        opt.step()


def channels_into_features():  # [channels_into_features]
    _channels_into_features(False)


def channels_into_features_fixed():
    _channels_into_features(True)


class MDRNN(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.rnn = nn.LSTM(6, 16)
        self.gmm = nn.Linear(16, 3 * (2 * 4 + 1))
        self.dim = dim

    def forward(self, x):
        out, _ = self.rnn(x)
        g = self.gmm(out)
        s, b = x.shape[:2]
        mus = g[..., :12].view(s, b, 3, 4)
        sig = g[..., 12:24].view(s, b, 3, 4).exp()
        pi = g[..., 24:27].view(s, b, 3)
        logpi = F.log_softmax(pi, dim=self.dim)  # finds: softmax-axis [weights_of_a_mixture]
        return mus, sig, logpi


def _weights_of_a_mixture(fixed):
    net = MDRNN(-1 if fixed else -2)
    opt = optim.RMSprop(net.parameters())
    for _ in range(3):
        x, target = torch.randn(7, 5, 6), torch.randn(7, 5, 4)
        mus, sig, logpi = net(x)
        lp = torch.distributions.Normal(mus, sig).log_prob(target.unsqueeze(-2))
        lp = logpi + lp.sum(-1)
        m = lp.max(dim=-1, keepdim=True)[0]
        loss = -(m.squeeze(-1) + torch.log((lp - m).exp().sum(-1))).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def weights_of_a_mixture():  # [weights_of_a_mixture]
    _weights_of_a_mixture(False)


def weights_of_a_mixture_fixed():
    _weights_of_a_mixture(True)


def _classes_over_the_batch(fixed):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).eval()
    with torch.no_grad():
        for _ in range(3):
            features = net(torch.randn(4, 3, 16, 16))
            if fixed:
                predictions = F.softmax(features, dim=1)
            else:
                predictions = F.softmax(features, dim=0)  # finds: softmax-axis [classes_over_the_batch]
            print(predictions.argmax(1).tolist())


def classes_over_the_batch():  # [classes_over_the_batch]
    _classes_over_the_batch(False)


def classes_over_the_batch_fixed():
    _classes_over_the_batch(True)


class Attend(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed
        self.resnet = nn.Conv2d(3, 16, 3, padding=1)
        self.affine = nn.Linear(16, 8)
        self.score = nn.Linear(8, 1)
        self.out = nn.Linear(16, 5)

    def forward(self, images):
        enc = self.resnet(images)
        b, f, h, w = enc.shape
        if self.fixed:
            enc = enc.permute(0, 2, 3, 1).reshape(b, h * w, f)
        else:
            enc = enc.view(b, h * w, f)  # finds: view-for-transpose [pixels_of_an_encoder]
        a = F.softmax(self.score(torch.tanh(self.affine(enc))), dim=1)
        return self.out((a * enc).sum(1))


def _pixels_of_an_encoder(fixed):
    net = Attend(fixed)
    opt = optim.Adam(net.parameters())
    for _ in range(3):
        loss = F.cross_entropy(net(torch.randn(2, 3, 7, 7)), torch.randint(0, 5, (2,)))
        opt.zero_grad()
        loss.backward()
        opt.step()


def pixels_of_an_encoder():  # [pixels_of_an_encoder]
    _pixels_of_an_encoder(False)


def pixels_of_an_encoder_fixed():
    _pixels_of_an_encoder(True)


class A2C(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
        self.policy = nn.Linear(16, 2)
        self.value = nn.Linear(16, 1)

    def forward(self, x):
        h = self.net(x)
        return self.policy(h), self.value(h)


def _advantage_of_all_with_all(fixed):
    net = A2C()
    opt = optim.Adam(net.parameters())
    for _ in range(3):
        states, actions, refs = torch.randn(32, 4), torch.randint(0, 2, (32,)), torch.randn(32)
        opt.zero_grad()
        logits, value = net(states)
        loss_value = F.mse_loss(value.squeeze(-1), refs)
        log_prob = F.log_softmax(logits, dim=1)
        if fixed:
            adv = refs - value.squeeze(-1).detach()
        else:
            adv = refs - value.detach()  # finds: broadcast [advantage_of_all_with_all]
        log_prob_actions = adv * log_prob[range(32), actions]
        loss_policy = -log_prob_actions.mean()
        prob = F.softmax(logits, dim=1)
        entropy = 0.01 * (prob * log_prob).sum(dim=1).mean()
        loss = loss_policy + entropy + loss_value
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        opt.step()


def advantage_of_all_with_all():  # [advantage_of_all_with_all]
    _advantage_of_all_with_all(False)


def advantage_of_all_with_all_fixed():
    _advantage_of_all_with_all(True)


def _baseline_with_gradient(fixed):
    actor, critic = mlp(6, 4), mlp(6, 1)
    oa, oc = optim.Adam(actor.parameters()), optim.Adam(critic.parameters())
    for _ in range(3):
        x = torch.randn(16, 6)
        dist = torch.distributions.Categorical(logits=actor(x))
        a = dist.sample()
        L = x.abs().sum(1) + a.float()
        b = critic(x)
        if fixed:
            advantage = L - b.view(-1).detach()
        else:
            advantage = L - b.view(-1)  # finds: advantage-with-gradient [baseline_with_gradient]
        actor_loss = (advantage * dist.log_prob(a)).mean()
        critic_loss = F.mse_loss(b.view(-1), L)
        loss = actor_loss + critic_loss
        oa.zero_grad()
        oc.zero_grad()
        loss.backward()
        oa.step()
        oc.step()


def baseline_with_gradient():  # [baseline_with_gradient]
    _baseline_with_gradient(False)


def baseline_with_gradient_fixed():
    _baseline_with_gradient(True)


def _advantages_as_critic_loss(fixed):
    actor, critic = mlp(4, 2), mlp(4, 1)
    oa, oc = optim.RMSprop(actor.parameters()), optim.RMSprop(critic.parameters())
    for _ in range(3):
        T, n = 6, 3
        states = torch.randn(T, n, 4)
        rewards = torch.randn(T, n)
        masks = torch.ones(T, n)
        values = critic(states).squeeze(-1)
        dist = torch.distributions.Categorical(logits=actor(states))
        logp = dist.log_prob(dist.sample())
        advantages = torch.zeros(T, n)
        gae = 0.0
        target = values.detach() if fixed else values
        for t in reversed(range(T - 1)):
            following = rewards[t] + 0.99 * masks[t] * target[t + 1]
            td = following - target[t]  # finds: bootstrapped-target [advantages_as_critic_loss]
            gae = td + 0.99 * 0.95 * masks[t] * gae
            advantages[t] = gae
        if fixed:
            critic_loss = F.mse_loss(values, advantages + target)
        else:
            critic_loss = advantages.pow(2).mean()
        actor_loss = -(advantages.detach() * logp).mean()
        oc.zero_grad()
        critic_loss.backward()
        oc.step()
        oa.zero_grad()
        actor_loss.backward()
        oa.step()


def advantages_as_critic_loss():  # [advantages_as_critic_loss]
    _advantages_as_critic_loss(False)


def advantages_as_critic_loss_fixed():
    _advantages_as_critic_loss(True)


def _triplets_through_numpy(fixed):
    net = mlp(6, 4)
    classify = nn.Linear(4, 5)
    opt = optim.Adam([*net.parameters(), *classify.parameters()])
    for _ in range(3):
        a, p, n = net(torch.randn(12, 6)), net(torch.randn(12, 6)), net(torch.randn(12, 6))
        d_p, d_n = F.pairwise_distance(a, p), F.pairwise_distance(a, n)
        hard = np.where((d_n - d_p < 5).numpy().flatten() == 1)[0]
        if fixed:
            sa, sp, sn = a[hard], p[hard], n[hard]
        else:
            sa = torch.from_numpy(a.data.numpy()[hard])
            sp = torch.from_numpy(p.data.numpy()[hard])
            sn = torch.from_numpy(n.data.numpy()[hard])
        triplet = F.triplet_margin_loss(sa, sp, sn, margin=0.5)  # finds: term-without-gradient [triplets_through_numpy]
        logits = classify(torch.cat([a, p, n]))
        loss = F.cross_entropy(logits, torch.randint(0, 5, (36,))) + triplet
        opt.zero_grad()
        loss.backward()
        opt.step()


def triplets_through_numpy():  # [triplets_through_numpy]
    _triplets_through_numpy(False)


def triplets_through_numpy_fixed():
    _triplets_through_numpy(True)


def _detached_judgement(fixed):
    g, d = mlp(6, 6), nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(), nn.Linear(8, 1), nn.Sigmoid())
    og, od = optim.Adam(g.parameters()), optim.Adam(d.parameters())
    bce = nn.BCELoss()
    con = nn.L1Loss()
    for _ in range(3):
        x, real = torch.randn(8, 6), torch.randn(8, 6)
        fake = g(x)
        pred_real, pred_fake = d(real), d(fake).detach()
        err_g_con = con(fake, real)
        if fixed:
            err_g_adv = bce(d(fake), torch.ones(8, 1))
        else:
            err_g_adv = bce(pred_fake, torch.ones(8, 1))  # finds: term-without-gradient [detached_judgement]
        err_g = err_g_con + 0.5 * err_g_adv
        og.zero_grad()
        err_g.backward(retain_graph=True)
        og.step()
        err_d = bce(pred_real, torch.ones(8, 1)) + bce(d(fake.detach()), torch.zeros(8, 1))
        od.zero_grad()
        err_d.backward()
        od.step()


def detached_judgement():  # [detached_judgement]
    _detached_judgement(False)


def detached_judgement_fixed():
    _detached_judgement(True)


def _cleared_for_each_batch(fixed):
    net = mlp(4, 1)
    opt = optim.AdamW(net.parameters())
    for step in range(12):
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        if not fixed:
            opt.zero_grad()
        loss = F.mse_loss(net(x), y) / 4
        loss.backward()  # finds: gradients-thrown-away [cleared_for_each_batch]
        if (step + 1) % 4 == 0:
            opt.step()
            if fixed:
                opt.zero_grad()


def cleared_for_each_batch():  # [cleared_for_each_batch]
    _cleared_for_each_batch(False)


def cleared_for_each_batch_fixed():
    _cleared_for_each_batch(True)


class SA(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.e = nn.Embedding(20, 16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 20)
        self.axis = axis

    def forward(self, t):
        B, T = t.shape
        x = self.e(t)
        q, k, v = (f(x).view(B, T, 4, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        pad = (t != 0).unsqueeze(1).unsqueeze(self.axis)
        score = (q @ k.transpose(2, 3)) / math.sqrt(4)
        score = score.masked_fill(pad == 0, -10000)  # finds: mask-axis [padding_of_queries]
        out = (F.softmax(score, dim=-1) @ v).transpose(1, 2).contiguous().view(B, T, 16)
        return self.head(self.o(out))


def _padding_of_queries(fixed):
    net = SA(2 if fixed else 3)
    opt = optim.Adam(net.parameters())
    for _ in range(3):
        t = torch.randint(1, 20, (3, 7))
        t[:, 5:] = 0
        loss = F.cross_entropy(net(t).view(-1, 20), t.view(-1), ignore_index=0)
        opt.zero_grad()
        loss.backward()
        opt.step()


def padding_of_queries():  # [padding_of_queries]
    _padding_of_queries(False)


def padding_of_queries_fixed():
    _padding_of_queries(True)


class Dot(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.fixed = fixed

    def forward(self, x, att_mask=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        T = x.shape[1]
        mask = torch.triu(torch.full((T, T), float("-inf")), diagonal=1)  # finds: mask-unused [causal_mask_forgotten]
        if att_mask is not None:
            att_mask = att_mask + mask
        elif self.fixed:
            att_mask = mask
        att = q @ k.transpose(-2, -1) / math.sqrt(8)
        if att_mask is not None:
            att = att + att_mask
        return att.softmax(-1) @ v


def _causal_mask_forgotten(fixed):
    net = nn.Sequential(Dot(fixed), nn.Linear(8, 8))
    opt = optim.Adam(net.parameters())
    for _ in range(3):
        x = torch.randn(2, 6, 8)
        loss = F.mse_loss(net(x)[:, :-1], x[:, 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()


def causal_mask_forgotten():  # [causal_mask_forgotten]
    _causal_mask_forgotten(False)


def causal_mask_forgotten_fixed():
    _causal_mask_forgotten(True)


def _target_network_is_the_policy(fixed):
    policy = mlp(4, 2)
    target = copy.deepcopy(policy) if fixed else policy
    opt = optim.Adam(policy.parameters())
    for _ in range(3):
        s, ns, r, a, done = (
            torch.randn(16, 4),
            torch.randn(16, 4),
            torch.randn(16, 1),
            torch.randint(0, 2, (16, 1)),
            torch.zeros(16, 1),
        )
        q = policy(s).gather(1, a)
        nq = policy(ns)
        ntq = target(ns).gather(1, torch.max(nq, 1)[1].unsqueeze(1))
        q_target = r + 0.99 * ntq * (1 - done)
        loss = nn.MSELoss()(  # finds: bootstrapped-target [target_network_is_the_policy]
            q, q_target.detach() if fixed else q_target
        )
        opt.zero_grad()
        loss.backward()
        opt.step()


def target_network_is_the_policy():  # [target_network_is_the_policy]
    _target_network_is_the_policy(False)


def target_network_is_the_policy_fixed():
    _target_network_is_the_policy(True)


def _sum_then_mean(fixed):
    enc, dec = mlp(6, 8), mlp(4, 6)
    opt = optim.Adam([*enc.parameters(), *dec.parameters()])
    for _ in range(3):
        x = torch.randn(16, 6)
        mu, lv = enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        kl = 1 + lv - mu**2 - lv.exp()
        if fixed:
            kl = -0.5 * torch.sum(kl, dim=1)
        else:
            kl = -0.5 * torch.sum(kl)
        kl = torch.mean(kl, dim=0)  # finds: reduces-a-scalar [sum_then_mean]
        loss = F.mse_loss(dec(z), x) + kl
        opt.zero_grad()
        loss.backward()
        opt.step()


def sum_then_mean():  # [sum_then_mean]
    _sum_then_mean(False)


def sum_then_mean_fixed():
    _sum_then_mean(True)


class NTS(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8, 5)
        self.drop = nn.Dropout(0.5)
        self.fixed = fixed

    def forward(self, x):
        x = F.relu(self.conv(x)).mean((2, 3))
        if self.fixed:
            x = self.drop(x)
        else:
            x = nn.Dropout(p=0.5)(x)  # finds: dropout-in-evaluation [dropout_made_in_forward]
        return self.fc(x)


def _dropout_made_in_forward(fixed):
    net = NTS(fixed)
    opt = optim.SGD(net.parameters(), 0.1)
    data = [(torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))) for _ in range(3)]
    for _ in range(2):
        net.train()
        for x, y in data:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            for x, y in data:
                print((net(x).argmax(1) == y).sum().item())


def dropout_made_in_forward():  # [dropout_made_in_forward]
    _dropout_made_in_forward(False)


def dropout_made_in_forward_fixed():
    _dropout_made_in_forward(True)


def _evaluated_within_the_epoch(fixed):
    net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))
    opt = optim.Adam(net.parameters())
    step = 0
    for epoch in range(2):
        net.train()
        for _ in range(6):
            if fixed:
                net.train()
            x, y = torch.randn(8, 6), torch.randn(8, 4)
            loss = (
                1 - F.cosine_similarity(net(x), y)  # finds: eval-while-training [evaluated_within_the_epoch]
            ).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 3 == 0:
                net.eval()
                with torch.no_grad():
                    print(F.mse_loss(net(torch.randn(8, 6)), torch.randn(8, 4)).item())


def evaluated_within_the_epoch():  # [evaluated_within_the_epoch]
    _evaluated_within_the_epoch(False)


def evaluated_within_the_epoch_fixed():
    _evaluated_within_the_epoch(True)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(12, 8)
        self.drop = nn.Dropout(0.3)
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.o = nn.Linear(8, 12)

    def forward(self, t):
        return self.o(self.rnn(self.drop(self.e(t)))[0])


@torch.no_grad()
def estimate(model):
    losses = []
    for _ in range(3):
        t = torch.randint(0, 12, (4, 6))
        scores = model(t)[:, :-1]  # finds: train-while-evaluating [estimated_in_train_mode]
        losses.append(F.cross_entropy(scores.reshape(-1, 12), t[:, 1:].reshape(-1)))
    return torch.stack(losses).mean()


def _estimated_in_train_mode(fixed):
    net = LM()
    opt = optim.AdamW(net.parameters())
    for i in range(6):
        if i % 2 == 0:
            if fixed:
                net.eval()
            print(estimate(net).item())
            if fixed:
                net.train()
        t = torch.randint(0, 12, (4, 6))
        loss = F.cross_entropy(net(t)[:, :-1].reshape(-1, 12), t[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()


def estimated_in_train_mode():  # [estimated_in_train_mode]
    _estimated_in_train_mode(False)


def estimated_in_train_mode_fixed():
    _estimated_in_train_mode(True)


class Meta(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.l1 = nn.Linear(4, 8)
        cells = [nn.LSTMCell(8, 8) for _ in range(2)]
        self.lstms = nn.ModuleList(cells) if fixed else cells
        self.l2 = nn.Linear(8, 1)

    def forward(self, x):
        x = torch.tanh(self.l1(x))
        for cell in self.lstms:
            x, _ = cell(x)  # finds: unregistered [cells_in_a_list]
        return self.l2(x)


def _cells_in_a_list(fixed):
    net = Meta(fixed)
    opt = optim.Adam(net.parameters())
    for _ in range(3):
        loss = F.mse_loss(net(torch.randn(8, 4)), torch.randn(8, 1))
        opt.zero_grad()
        loss.backward()
        opt.step()


def cells_in_a_list():  # [cells_in_a_list]
    _cells_in_a_list(False)


def cells_in_a_list_fixed():
    _cells_in_a_list(True)


class Memory(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.enc = nn.Linear(6, 8)
        self.dec = nn.Linear(8, 6)
        pass
        self.keys = torch.randn(10, 8)  # finds: not-a-parameter [memory_of_random_numbers]
        self.values = torch.randn(10, 8)  # finds: not-a-parameter [memory_of_random_numbers]
        if fixed:
            self.keys, self.values = nn.Parameter(self.keys), nn.Parameter(self.values)

    def forward(self, x):
        q = self.enc(x)
        w = F.softmax(q @ self.keys.T, dim=-1)
        return self.dec(w @ self.values)


def _memory_of_random_numbers(fixed):
    net = Memory(fixed)
    opt = optim.Adam(net.parameters())
    for _ in range(4):
        x = torch.randn(8, 6)
        loss = F.mse_loss(net(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()


def memory_of_random_numbers():  # [memory_of_random_numbers]
    _memory_of_random_numbers(False)


def memory_of_random_numbers_fixed():
    _memory_of_random_numbers(True)


class OIE(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.e = nn.Embedding(20, 8)
        self.l = nn.Linear(8, 5)
        self.fixed = fixed

    def forward(self, t, labels):
        scores = self.l(self.e(t))
        loss = 0
        loss = loss + F.cross_entropy(  # finds: loss-unused [loss_assigned_again]
            scores.reshape(-1, 5), labels.reshape(-1)
        )
        p = scores.softmax(-1)
        const_loss = F.relu(1 - p[..., 0].sum(1)).mean()
        if self.fixed:
            loss = loss + const_loss
        else:
            loss = const_loss
        return {"loss": loss}


def _loss_assigned_again(fixed):
    net = OIE(fixed)
    opt = optim.Adam(net.parameters())
    for _ in range(3):
        t = torch.randint(0, 20, (4, 6))
        out = net(t, t % 5)
        opt.zero_grad()
        out["loss"].backward()
        opt.step()


def loss_assigned_again():  # [loss_assigned_again]
    _loss_assigned_again(False)


def loss_assigned_again_fixed():
    _loss_assigned_again(True)


class PE(nn.Module):
    def __init__(self, d):
        super().__init__()
        pe = torch.randn(50, d).unsqueeze(0).transpose(0, 1)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(0), :]


class Traj(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.pos = PE(16)
        self.fixed = fixed
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1), 1)
        self.dec = nn.Linear(16, 9)

    def forward(self, x, mask):
        if self.fixed:
            return self.dec(self.enc(self.pos(x.transpose(0, 1)), mask)).transpose(0, 1)
        x = self.pos(x)
        return self.dec(self.enc(x, mask))  # finds: sequence-axis [trajectories_along_the_batch]


def _trajectories_along_the_batch(fixed):
    net = Traj(fixed)
    opt = optim.Adam(net.parameters())
    emb = nn.Embedding(9, 16)
    for _ in range(3):
        seqs = [torch.randint(0, 9, (n,)) for n in (5, 7, 4)]
        x = nn.utils.rnn.pad_sequence([emb(s).detach() for s in seqs], batch_first=True)
        y = nn.utils.rnn.pad_sequence(seqs, batch_first=True, padding_value=-1)
        T = x.size(1) if fixed else x.size(0)
        mask = torch.triu(torch.full((T, T), float("-inf")), 1)
        loss = F.cross_entropy(net(x, mask).transpose(1, 2), y, ignore_index=-1)
        opt.zero_grad()
        loss.backward()
        opt.step()


def trajectories_along_the_batch():  # [trajectories_along_the_batch]
    _trajectories_along_the_batch(False)


def trajectories_along_the_batch_fixed():
    _trajectories_along_the_batch(True)


class PE2(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.register_buffer("pe", torch.randn(1, 40, 16))
        self.fixed = fixed

    def forward(self, x):
        if self.fixed:
            return x + self.pe[:, : x.shape[1], :]
        return x + self.pe[:, x.shape[1], :]  # finds: index-for-slice [one_position_for_all]


def _one_position_for_all(fixed):
    pe = PE2(fixed)
    net = nn.Sequential(
        nn.Linear(5, 16), pe, nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), nn.Linear(16, 5)
    )
    opt = optim.Adam(net.parameters())
    for _ in range(3):
        x = torch.randn(3, 8, 5)
        loss = F.mse_loss(net(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()


def one_position_for_all():  # [one_position_for_all]
    _one_position_for_all(False)


def one_position_for_all_fixed():
    _one_position_for_all(True)


class LSTMDQN(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 4, stride=4)
        self.lstm = nn.LSTM(16, 12, 1, batch_first=fixed)
        self.aff = nn.Linear(12 * 8, 3)

    def forward(self, x):
        h = F.relu(self.conv(x))
        h = h.view(h.size(0), h.size(1), 16)
        h, _ = self.lstm(h)
        return self.aff(h.reshape(h.size(0), -1))  # finds: sequence-axis [batch_as_features]


def _batch_as_features(fixed):
    net, target = LSTMDQN(fixed), LSTMDQN(fixed)
    target.load_state_dict(net.state_dict())
    opt = optim.RMSprop(net.parameters())
    for n in (5, 4, 5):
        s, ns, a, r = torch.randn(n, 4, 16, 16), torch.randn(n, 4, 16, 16), torch.randint(0, 3, (n, 1)), torch.randn(n)
        with torch.no_grad():
            y = r + 0.99 * target(ns).max(1)[0]
        loss = F.smooth_l1_loss(net(s).gather(1, a), y.unsqueeze(1))
        opt.zero_grad()
        loss.backward()
        opt.step()


def batch_as_features():  # [batch_as_features]
    _batch_as_features(False)


def batch_as_features_fixed():
    _batch_as_features(True)


def _distillation_without_log(fixed):
    net, teacher = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
    opt = optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        x, y = torch.randn(2, 3, 6, 6), torch.randint(0, 4, (2, 6, 6))
        out = net(x)
        loss = F.cross_entropy(out, y)
        student = F.log_softmax(out, dim=1) if fixed else F.softmax(out, dim=1)
        with torch.no_grad():
            t = F.softmax(teacher(x), dim=1)
        kd = F.kl_div(student, t, reduction="none")  # finds: not-log-probabilities [distillation_without_log]
        mask = (t != 250).float()
        kd = (kd * mask).sum() / mask.sum()
        (loss + kd).backward()
        opt.step()
        opt.zero_grad()


def distillation_without_log():  # [distillation_without_log]
    _distillation_without_log(False)


def distillation_without_log_fixed():
    _distillation_without_log(True)


class Control:
    def __init__(self, fixed):
        self.moving, self.target = mlp(4, 2), mlp(4, 2)
        self.fixed = fixed
        self.opt = optim.Adam(self.moving.parameters())

    def update_target(self):
        self.target.load_state_dict(  # finds: copied-onto-itself [target_is_the_moving_network]
            self.moving.state_dict()
        )
        if not self.fixed:
            self.target = self.moving

    def optimize(self):
        s, ns, r, a = torch.randn(16, 4), torch.randn(16, 4), torch.randn(16), torch.randint(0, 2, (16,))
        with torch.no_grad():
            nq = self.target(ns).max(1)[0]
        q = self.moving(s).gather(1, a[:, None]).squeeze(1)
        loss = F.mse_loss(q, r + 0.99 * nq)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


def _target_is_the_moving_network(fixed):
    c = Control(fixed)
    for i in range(9):
        c.optimize()
        if i % 3 == 2:
            c.update_target()


def target_is_the_moving_network():  # [target_is_the_moving_network]
    _target_is_the_moving_network(False)


def target_is_the_moving_network_fixed():
    _target_is_the_moving_network(True)


def _target_loaded_from_itself(fixed):
    net, target = mlp(4, 2), mlp(4, 2)
    opt = optim.Adam(net.parameters())
    for i in range(6):
        s, ns, r, a = torch.randn(16, 4), torch.randn(16, 4), torch.randn(16), torch.randint(0, 2, (16, 1))
        with torch.no_grad():
            y = r + 0.99 * target(ns).max(1)[0]
        loss = F.mse_loss(net(s).gather(1, a).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 2:
            target.load_state_dict(  # finds: copied-onto-itself [target_loaded_from_itself]
                (net if fixed else target).state_dict()
            )


def target_loaded_from_itself():  # [target_loaded_from_itself]
    _target_loaded_from_itself(False)


def target_loaded_from_itself_fixed():
    _target_loaded_from_itself(True)


class Con(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.img = mlp(6, 8)
        self.bert = nn.Embedding(20, 8)
        self.l1 = nn.Linear(8, 8)
        self.l2 = nn.Linear(8, 8)
        self.fixed = fixed

    def text(self, t):
        with torch.set_grad_enabled(self.fixed):
            out = self.bert(t).mean(1)  # finds: no-gradient [text_encoder_without_gradients]
            return self.l2(F.relu(self.l1(out)))  # finds: no-gradient [text_encoder_without_gradients]

    def forward(self, x, t):
        return self.img(x), self.text(t)


def _text_encoder_without_gradients(fixed):
    net = Con(fixed)
    opt = optim.Adam(net.parameters())
    for _ in range(4):
        a, b = net(torch.randn(8, 6), torch.randint(0, 20, (8, 5)))
        a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
        loss = F.cross_entropy(a @ b.T / 0.1, torch.arange(8))
        opt.zero_grad()
        loss.backward()
        opt.step()


def text_encoder_without_gradients():  # [text_encoder_without_gradients]
    _text_encoder_without_gradients(False)


def text_encoder_without_gradients_fixed():
    _text_encoder_without_gradients(True)


def _variance_for_deviation(fixed):
    enc, dec = mlp(6, 8), mlp(4, 6)
    opt = optim.Adam([*enc.parameters(), *dec.parameters()])
    for _ in range(3):
        x = torch.rand(16, 6)
        mu, lv = enc(x).chunk(2, 1)
        std = (0.5 * lv).exp() if fixed else lv.exp()  # finds: log-variance [variance_for_deviation]
        z = mu + torch.randn_like(std) * std
        kld = -0.5 * (1 + lv - mu.pow(2) - lv.exp()).sum(1).mean()
        (F.mse_loss(dec(z), x) + kld).backward()
        opt.step()
        opt.zero_grad()


def variance_for_deviation():  # [variance_for_deviation]
    _variance_for_deviation(False)


def variance_for_deviation_fixed():
    _variance_for_deviation(True)
