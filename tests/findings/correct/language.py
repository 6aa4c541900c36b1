"""Language models, recurrent networks, sequence to sequence."""

import math

import torch
import torch.nn.functional as F
from torch import nn, optim


class CausalSelfAttention(nn.Module):
    def __init__(self, d, h, flash):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.attn_dropout, self.resid_dropout, self.h, self.d, self.flash = (
            nn.Dropout(0.1),
            nn.Dropout(0.1),
            h,
            d,
            flash,
        )
        self.register_buffer("bias", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.d, dim=2)
        k = k.view(B, T, self.h, C // self.h).transpose(1, 2)
        q = q.view(B, T, self.h, C // self.h).transpose(1, 2)
        v = v.view(B, T, self.h, C // self.h).transpose(1, 2)
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = self.attn_dropout(F.softmax(att, dim=-1))
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class GPT(nn.Module):
    def __init__(self, flash=False, vocab=20, d=16):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(vocab, d), nn.Embedding(16, d), nn.Dropout(0.1)
        self.ln1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.ln2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.attn = nn.ModuleList(CausalSelfAttention(d, 4, flash) for _ in range(2))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(2))
        self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for a, n1, n2, m in zip(self.attn, self.ln1, self.ln2, self.mlp):
            x = x + a(n1(x))
            x = x + m(n2(x))
        x = self.ln_f(x)
        if targets is not None:
            logits = self.lm_head(x)
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return self.lm_head(x[:, [-1], :]), None

    @torch.no_grad()
    def generate(self, idx, n, top_k=5):
        for _ in range(n):
            logits, _ = self(idx[:, -16:])
            logits = logits[:, -1, :] / 0.8
            v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < v[:, [-1]]] = -float("inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
        return idx


def _batch(data, t=8, b=4):
    ix = torch.randint(len(data) - t - 1, (b,))
    return torch.stack([data[i : i + t] for i in ix]), torch.stack([data[i + 1 : i + 1 + t] for i in ix])


def _train_gpt(flash):
    torch.manual_seed(1337)
    data, model = torch.randint(0, 20, (200,)), GPT(flash)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    nodecay = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": nodecay, "weight_decay": 0.0}]
    optimizer = optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    for it in range(3):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (it + 1)
        if it % 2 == 0:
            model.eval()
            with torch.no_grad():
                losses = torch.zeros(2)
                for k in range(2):
                    losses[k] = model(*_batch(data))[1].item()
            model.train()
        for _micro in range(2):
            _, loss = model(*_batch(data))
            loss = loss / 2
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    model.eval()
    print(model.generate(torch.zeros((1, 1), dtype=torch.long), 5).shape)


def nanogpt():
    _train_gpt(False)


def nanogpt_flash():
    _train_gpt(True)


def word_language_model():
    encoder, rnn, decoder, drop = nn.Embedding(20, 8), nn.LSTM(8, 8, 2, dropout=0.2), nn.Linear(8, 20), nn.Dropout(0.2)
    params = [*encoder.parameters(), *rnn.parameters(), *decoder.parameters()]
    data = torch.randint(0, 20, (200,))
    data = data.narrow(0, 0, 40 * 5).view(5, -1).t().contiguous()
    hidden = (torch.zeros(2, 5, 8), torch.zeros(2, 5, 8))
    total = 0.0
    for i in range(0, 30, 10):
        x, y = data[i : i + 10], data[i + 1 : i + 11].view(-1)
        for p in params:
            p.grad = None
        hidden = tuple(h.detach() for h in hidden)
        out, hidden = rnn(drop(encoder(x)), hidden)
        logp = F.log_softmax(decoder(drop(out)).view(-1, 20), dim=1)
        loss = nn.NLLLoss()(logp, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 0.25)
        for p in params:
            p.data.add_(p.grad, alpha=-0.1)
        total += loss.item()


def time_sequence_prediction():
    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 8), nn.LSTMCell(8, 8), nn.Linear(8, 1)

        def forward(self, input, future=0):
            outputs = []
            h, c = torch.zeros(input.size(0), 8, dtype=torch.double), torch.zeros(input.size(0), 8, dtype=torch.double)
            h2, c2 = (
                torch.zeros(input.size(0), 8, dtype=torch.double),
                torch.zeros(input.size(0), 8, dtype=torch.double),
            )
            for input_t in input.split(1, dim=1):
                h, c = self.lstm1(input_t, (h, c))
                h2, c2 = self.lstm2(h, (h2, c2))
                output = self.linear(h2)
                outputs += [output]
            for _ in range(future):
                h, c = self.lstm1(output, (h, c))
                h2, c2 = self.lstm2(h, (h2, c2))
                output = self.linear(h2)
                outputs += [output]
            return torch.cat(outputs, dim=1)

    seq = Sequence().double()
    data = torch.sin(torch.arange(12, dtype=torch.double)).repeat(3, 1)
    criterion, optimizer = nn.MSELoss(), optim.LBFGS(seq.parameters(), lr=0.8, max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = criterion(seq(data[:, :-1]), data[:, 1:])
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
        with torch.no_grad():
            pred = seq(data[:, :-1], future=3)
            print(criterion(pred[:, :-3], data[:, 1:]).item())


def char_rnn_classifier_manual_update():
    i2h, h2o = nn.Linear(5 + 8, 8), nn.Linear(8, 3)
    criterion = nn.NLLLoss()
    for _ in range(3):
        hidden, line = torch.zeros(1, 8), torch.randn(6, 1, 5)
        for p in (*i2h.parameters(), *h2o.parameters()):
            p.grad = None
        for i in range(line.size(0)):
            hidden = torch.tanh(i2h(torch.cat((line[i], hidden), 1)))
        output = F.log_softmax(h2o(hidden), dim=1)
        loss = criterion(output, torch.tensor([1]))
        loss.backward()
        for p in (*i2h.parameters(), *h2o.parameters()):
            p.data.add_(p.grad.data, alpha=-0.005)


def seq2seq_with_attention():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.gru, self.dropout = (
                nn.Embedding(12, 8),
                nn.GRU(8, 8, batch_first=True),
                nn.Dropout(0.1),
            )

        def forward(self, x):
            return self.gru(self.dropout(self.embedding(x)))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.gru, self.out = nn.Embedding(12, 8), nn.GRU(16, 8, batch_first=True), nn.Linear(8, 12)
            self.wa, self.ua, self.va = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, enc, hidden, target=None):
            token, outputs = torch.zeros(enc.size(0), 1, dtype=torch.long), []
            for i in range(5):
                query = hidden.permute(1, 0, 2)
                scores = self.va(torch.tanh(self.wa(query) + self.ua(enc))).squeeze(2).unsqueeze(1)
                context = torch.bmm(F.softmax(scores, dim=-1), enc)
                out, hidden = self.gru(torch.cat((self.embedding(token), context), dim=2), hidden)
                outputs.append(self.out(out))
                if target is not None:
                    token = target[:, i].unsqueeze(1)
                else:
                    token = outputs[-1].topk(1)[1].squeeze(-1).detach()
            return F.log_softmax(torch.cat(outputs, dim=1), dim=-1)

    encoder, decoder = Encoder(), Decoder()
    opt_e, opt_d, criterion = optim.Adam(encoder.parameters()), optim.Adam(decoder.parameters()), nn.NLLLoss()
    for _ in range(2):
        x, y = torch.randint(0, 12, (4, 7)), torch.randint(0, 12, (4, 5))
        opt_e.zero_grad()
        opt_d.zero_grad()
        enc, hidden = encoder(x)
        out = decoder(enc, hidden, y)
        criterion(out.view(-1, out.size(-1)), y.view(-1)).backward()
        opt_e.step()
        opt_d.step()
    encoder.eval()
    decoder.eval()
    with torch.no_grad():
        enc, hidden = encoder(x)
        _, top = decoder(enc, hidden).topk(1)
        print(top.squeeze().tolist())


def sentiment_with_packed_lstm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn = nn.Embedding(30, 8, padding_idx=0), nn.LSTM(8, 6, bidirectional=True, batch_first=True)
            self.fc, self.drop = nn.Linear(12, 1), nn.Dropout(0.3)

        def forward(self, text, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.drop(self.emb(text)), lengths, batch_first=True, enforce_sorted=False
            )
            _, (h, _) = self.rnn(packed)
            return self.fc(self.drop(torch.cat((h[-2], h[-1]), dim=1))).squeeze(1)

    model, criterion = Net(), nn.BCEWithLogitsLoss()
    optimizer = optim.Adam(model.parameters())
    for _ in range(2):
        text, lengths, label = (
            torch.randint(1, 30, (6, 9)),
            torch.tensor([9, 5, 3, 7, 8, 2]),
            torch.randint(0, 2, (6,)).float(),
        )
        optimizer.zero_grad()
        predictions = model(text, lengths)
        loss = criterion(predictions, label)
        loss.backward()
        optimizer.step()
        rounded = torch.round(torch.sigmoid(predictions))
        print((rounded == label).float().sum().item() / 6)


def transformer_translation():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.src, self.tgt = nn.Embedding(15, 8), nn.Embedding(15, 8)
            self.transformer = nn.Transformer(8, 2, 1, 1, 16)
            self.generator = nn.Linear(8, 15)

        def forward(self, src, tgt, mask, src_pad, tgt_pad):
            out = self.transformer(
                self.src(src) * math.sqrt(8),
                self.tgt(tgt) * math.sqrt(8),
                tgt_mask=mask,
                src_key_padding_mask=src_pad,
                tgt_key_padding_mask=tgt_pad,
                memory_key_padding_mask=src_pad,
            )
            return self.generator(out)

    model, loss_fn = Net(), nn.CrossEntropyLoss(ignore_index=0)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    optimizer = optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    for _ in range(2):
        src, tgt = torch.randint(1, 15, (6, 3)), torch.randint(1, 15, (5, 3))
        tgt_in, tgt_out = tgt[:-1, :], tgt[1:, :]
        mask = torch.triu(torch.full((4, 4), float("-inf")), diagonal=1)
        logits = model(src, tgt_in, mask, (src == 0).t().float(), (tgt_in == 0).t().float())
        optimizer.zero_grad()
        loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
        loss.backward()
        optimizer.step()


def bag_of_embeddings():
    model = nn.ModuleDict({"embedding": nn.EmbeddingBag(20, 8, sparse=True), "fc": nn.Linear(8, 4)})
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        text, offsets, label = torch.randint(0, 20, (12,)), torch.tensor([0, 4, 9]), torch.randint(0, 4, (3,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model["fc"](model["embedding"](text, offsets)), label)
        loss.backward()
        optimizer.step()


def skip_gram_negative_sampling():
    center, context = nn.Embedding(20, 8, sparse=True), nn.Embedding(20, 8, sparse=True)
    optimizer = optim.SparseAdam([*center.parameters(), *context.parameters()], lr=0.01)
    for _ in range(3):
        c, o, n = torch.randint(0, 20, (6,)), torch.randint(0, 20, (6,)), torch.randint(0, 20, (6, 4))
        v, u = center(c), context(o)
        positive = F.logsigmoid((v * u).sum(1))
        negative = F.logsigmoid(-torch.bmm(context(n), v.unsqueeze(2)).squeeze(2)).sum(1)
        loss = -(positive + negative).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def ctc_speech():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.fc = nn.GRU(4, 8, bidirectional=True, batch_first=True), nn.Linear(16, 6)

        def forward(self, x):
            return F.log_softmax(self.fc(self.rnn(x)[0]), dim=2)

    model, criterion = Net(), nn.CTCLoss(blank=0)
    optimizer = optim.AdamW(model.parameters(), 1e-3)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=5)
    for _ in range(3):
        out = model(torch.randn(3, 12, 4)).transpose(0, 1)
        loss = criterion(out, torch.randint(1, 6, (3, 4)), torch.full((3,), 12), torch.full((3,), 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
