"""Models of a library with a tiny random configuration, against ports that people write: functional, fused, other axes."""

import math

import torch
import torch.nn.functional as F
import transformers


def made(model):
    """The model with weights that are not symmetrical, so that each mistake shows."""
    torch.manual_seed(5)
    for name, value in model.named_parameters():
        if value.dim() > 1:
            torch.nn.init.normal_(value, 0.0, 1.0 / math.sqrt(value.shape[-1]))
        elif name.endswith("weight"):
            torch.nn.init.normal_(value, 1.0, 0.2)
        else:
            torch.nn.init.normal_(value, 0.0, 0.2)
    return model.eval()


def weights(model, dtype):
    return {name: value.detach().to(dtype) for name, value in model.state_dict().items()}


def tokens(*shape, high=60):
    torch.manual_seed(17)
    return torch.randint(3, high, shape)


@torch.no_grad()
def logits(model, x):
    return model(x, use_cache=False).logits


# ---------------------------------------------------------------- Phi: a part of the head is turned, both branches at once


def phi_model():
    return made(
        transformers.PhiForCausalLM(
            transformers.PhiConfig(
                vocab_size=60, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
                max_position_embeddings=64, partial_rotary_factor=0.5, attn_implementation="eager",
            )
        )
    )  # fmt: skip


def phi_a(dtype):
    model, x = phi_model().to(dtype), tokens(2, 13)
    return lambda: logits(model, x)


def phi_b(wrong, dtype):
    w, x = weights(phi_model(), dtype), tokens(2, 13)
    fused = []
    for i in range(3):
        p = f"model.layers.{i}.self_attn."
        fused.append(
            (
                torch.cat([w[p + f"{c}_proj.weight"] for c in "qkv"]).T.contiguous(),
                torch.cat([w[p + f"{c}_proj.bias"] for c in "qkv"]),
            )
        )
    return lambda: phi_port(w, fused, x, wrong)


def phi_port(w, fused, ids, wrong):
    b, t = ids.shape
    h = w["model.embed_tokens.weight"][ids]
    rot = 12 if wrong == "rotary on all of the head" else 6
    span = 12 if wrong == "frequencies over all of the head" else rot
    inv = 10000.0 ** (-torch.arange(0, rot, 2) / span)  # wrong: frequencies over all of the head
    angle = torch.arange(t)[:, None] * inv
    turn = torch.polar(torch.ones_like(angle), angle)
    for i in range(3):
        p = f"model.layers.{i}."
        n = F.layer_norm(h, (48,), w[p + "input_layernorm.weight"], w[p + "input_layernorm.bias"], 1e-5)
        qkv = torch.addmm(fused[i][1], n.reshape(-1, 48), fused[i][0]).view(b, t, 3, 4, 12)
        q, k, v = qkv.unbind(2)
        q, k = phi_turned(q, turn, rot), phi_turned(k, turn, rot)
        a = F.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)), is_causal=True)
        a = F.linear(a.transpose(1, 2).flatten(2), w[p + "self_attn.dense.weight"], w[p + "self_attn.dense.bias"])
        if wrong == "one branch after the other":
            h = h + a
            n = F.layer_norm(
                h, (48,), w[p + "input_layernorm.weight"], w[p + "input_layernorm.bias"], 1e-5
            )  # wrong: one branch after the other
            a = 0
        m = F.linear(n, w[p + "mlp.fc1.weight"], w[p + "mlp.fc1.bias"])
        if wrong == "exact gelu":
            m = F.gelu(m)  # wrong: exact gelu
        else:
            m = F.gelu(m, approximate="tanh")
        h = h + a + F.linear(m, w[p + "mlp.fc2.weight"], w[p + "mlp.fc2.bias"])  # wrong: one branch after the other
    h = F.layer_norm(h, (48,), w["model.final_layernorm.weight"], w["model.final_layernorm.bias"], 1e-5)
    if wrong == "bias of the head forgotten":
        return h @ w["lm_head.weight"].T  # wrong: bias of the head forgotten
    return h @ w["lm_head.weight"].T + w["lm_head.bias"]


def phi_turned(x, turn, rot):
    head, rest = x[..., :rot].float(), x[..., rot:]  # wrong: rotary on all of the head
    pairs = torch.complex(head[..., : rot // 2], head[..., rot // 2 :])  # wrong: rotary on all of the head
    done = pairs * turn[None, :, None]  # wrong: rotary on all of the head, frequencies over all of the head
    return torch.cat([done.real, done.imag, rest.float()], -1).to(x.dtype)  # wrong: rotary on all of the head


# ---------------------------------------------------------------- Gemma 3: layers in turns, two thetas, norms plus one


def gemma3_model():
    return made(
        transformers.Gemma3ForCausalLM(
            transformers.Gemma3TextConfig(
                vocab_size=60, hidden_size=48, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=2, head_dim=16, query_pre_attn_scalar=24, sliding_window=5,
                max_position_embeddings=64, attn_implementation="eager",
                layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
                rope_parameters={
                    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
                },
            )
        )
    )  # fmt: skip


def gemma3_a(dtype):
    model, x = gemma3_model().to(dtype), tokens(2, 15)
    return lambda: logits(model, x)


def gemma3_b(wrong, dtype):
    w, x = weights(gemma3_model(), dtype), tokens(2, 15)
    return lambda: Gemma3Port(w, wrong).forward(x)


class Gemma3Port:
    def __init__(self, w, wrong):
        self.w = w
        self.wrong = wrong
        self.window = 6 if wrong == "window counts itself out" else 5
        self.every = 1 if wrong == "full layer one too early" else 2
        self.factor = 1.0 if wrong == "positions of full layers not scaled" else 4.0
        self.local = 10000.0 if wrong == "one theta for all layers" else 100.0
        self.scale = 16 if wrong == "scale of the head" else 24

    def norm(self, x, name):
        y = x.float()
        y = y / torch.sqrt((y * y).mean(-1, keepdim=True) + 1e-6)
        return (y * (self.w[name].float() + 1)).to(x.dtype)

    def table(self, t, is_full):
        base = 10000.0 if is_full else self.local
        at = torch.arange(t, dtype=torch.float32)
        if is_full:
            at = at / self.factor  # wrong: positions of full layers not scaled
        freq = torch.outer(
            at, torch.pow(base, -torch.arange(8) / 8.0)
        )  # wrong: one theta for all layers, positions of full layers not scaled
        return freq.cos(), freq.sin()  # wrong: one theta for all layers, positions of full layers not scaled

    def turn(self, x, cos, sin):
        """X is (batch, time, heads, size)."""
        x1, x2 = x[..., :8], x[..., 8:]
        cos, sin = cos[None, :, None].to(x.dtype), sin[None, :, None].to(x.dtype)
        return torch.cat(
            [x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1
        )  # wrong: one theta for all layers, positions of full layers not scaled

    def attend(self, x, i):
        w, p = self.w, f"model.layers.{i}.self_attn."
        b, t, _ = x.shape
        is_full = i == self.every
        q = self.norm(F.linear(x, w[p + "q_proj.weight"]).view(b, t, 4, 16), p + "q_norm.weight")
        k = self.norm(F.linear(x, w[p + "k_proj.weight"]).view(b, t, 2, 16), p + "k_norm.weight")
        v = F.linear(x, w[p + "v_proj.weight"]).view(b, t, 2, 16)
        cos, sin = self.table(t, is_full)
        q, k = self.turn(q, cos, sin), self.turn(k, cos, sin)  # wrong: full layer one too early
        q = q.view(b, t, 2, 2, 16)
        if self.wrong == "heads taken in turns":
            q = q.reshape(b, t, 2, 2, 16).transpose(2, 3)  # wrong: heads taken in turns
        s = torch.einsum("btkgd,bskd->bkgts", q, k) / math.sqrt(
            self.scale
        )  # wrong: heads taken in turns, scale of the head
        at = torch.arange(t)
        seen = at[:, None] >= at[None]
        if not is_full:
            seen = seen & (at[:, None] - at[None] < self.window)  # wrong: window counts itself out
        s = s.masked_fill(~seen, torch.finfo(s.dtype).min)  # wrong: window counts itself out, full layer one too early
        o = torch.einsum("bkgts,bskd->btkgd", s.float().softmax(-1).to(v.dtype), v)
        if self.wrong == "heads taken in turns":
            o = o.transpose(2, 3)  # wrong: heads taken in turns
        return F.linear(o.reshape(b, t, 64), w[p + "o_proj.weight"])

    def forward(self, ids):
        w = self.w
        h = F.embedding(ids, w["model.embed_tokens.weight"])
        h = h * torch.tensor(48**0.5).to(h.dtype)
        for i in range(4):
            p = f"model.layers.{i}."
            a = self.attend(self.norm(h, p + "input_layernorm.weight"), i)
            h = h + self.norm(a, p + "post_attention_layernorm.weight")
            n = self.norm(h, p + "pre_feedforward_layernorm.weight")
            g, u = F.linear(n, w[p + "mlp.gate_proj.weight"]), F.linear(n, w[p + "mlp.up_proj.weight"])
            m = F.linear(F.gelu(g, approximate="tanh") * u, w[p + "mlp.down_proj.weight"])
            if self.wrong == "norm after the sum":
                h = self.norm(h + m, p + "post_feedforward_layernorm.weight")  # wrong: norm after the sum
            else:
                h = h + self.norm(m, p + "post_feedforward_layernorm.weight")
        return F.linear(self.norm(h, "model.norm.weight"), w["lm_head.weight"])


# ---------------------------------------------------------------- OLMo 2: norms after the branches, one norm over all heads


def olmo_model():
    return made(
        transformers.Olmo2ForCausalLM(
            transformers.Olmo2Config(
                vocab_size=60, hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=4, rms_norm_eps=1e-6, max_position_embeddings=64,
                rope_parameters={"rope_type": "default", "rope_theta": 500.0},
            )
        )
    )  # fmt: skip


def olmo_a(dtype):
    model, x = olmo_model().to(dtype), tokens(2, 12)
    return lambda: logits(model, x)


def olmo_b(wrong, dtype):
    w, x = weights(olmo_model(), dtype), tokens(2, 12)
    run = olmo_cached if wrong == "+one token at a time" else olmo_port
    return lambda: run(w, x, wrong)


def rms(x, weight, eps=1e-6):
    return F.rms_norm(x.float(), x.shape[-1:], None, eps).to(x.dtype) * weight


def olmo_port(w, ids, wrong):
    """Time first, as older trainers have it."""
    h = w["model.embed_tokens.weight"][ids.T]
    t, b, _ = h.shape
    f = torch.arange(t)[:, None] * 500.0 ** (-torch.arange(6) / 6)
    for i in range(3):
        p = f"model.layers.{i}."
        q, k, v = (h @ w[p + f"self_attn.{c}_proj.weight"].T for c in "qkv")
        if wrong == "norm of each head alone":
            q = rms(q.view(t, b, 4, 12), w[p + "self_attn.q_norm.weight"].view(4, 12))  # wrong: norm of each head alone
            k = rms(k.view(t, b, 4, 12), w[p + "self_attn.k_norm.weight"].view(4, 12))  # wrong: norm of each head alone
        else:
            q = rms(q, w[p + "self_attn.q_norm.weight"])
            k = rms(k, w[p + "self_attn.k_norm.weight"])
        q, k, v = (each.reshape(t, b * 4, 12) for each in (q, k, v))
        c, s = torch.cat([f, f], -1).cos()[:, None].to(q), torch.cat([f, f], -1).sin()[:, None].to(q)
        q = q * c + torch.cat([-q[..., 6:], q[..., :6]], -1) * s
        k = k * c + torch.cat([-k[..., 6:], k[..., :6]], -1) * s
        scores = torch.bmm(q.transpose(0, 1), k.permute(1, 2, 0)) * 12**-0.5
        scores = scores + torch.full((t, t), float("-inf")).triu(1).to(q)
        if wrong == "softmax over the queries":
            a = torch.softmax(scores.nan_to_num(neginf=-1e4), 1)  # wrong: softmax over the queries
        else:
            a = torch.softmax(scores.float(), -1).to(q)
        a = torch.bmm(a, v.transpose(0, 1)).transpose(0, 1).reshape(t, b, 48)
        a = a @ w[p + "self_attn.o_proj.weight"].T
        if wrong == "norm before the branch":
            n = rms(h + a, w[p + "post_attention_layernorm.weight"])  # wrong: norm before the branch
            h = h + a  # wrong: norm before the branch
        else:
            h = h + rms(a, w[p + "post_attention_layernorm.weight"])
            n = h
        m = F.silu(n @ w[p + "mlp.gate_proj.weight"].T) * (n @ w[p + "mlp.up_proj.weight"].T)
        h = h + rms(m @ w[p + "mlp.down_proj.weight"].T, w[p + "post_feedforward_layernorm.weight"])
    eps = 1e-2 if wrong == "eps of the last norm" else 1e-6
    return (rms(h, w["model.norm.weight"], eps) @ w["lm_head.weight"].T).transpose(0, 1)  # wrong: eps of the last norm


def olmo_cached(w, ids, wrong):
    done, past = [], [None] * 3
    for at in range(ids.shape[1]):
        h = w["model.embed_tokens.weight"][ids[:, at]]
        f = at * 500.0 ** (-torch.arange(6) / 6)
        c, s = torch.cat([f, f]).cos().to(h), torch.cat([f, f]).sin().to(h)
        for i in range(3):
            p = f"model.layers.{i}."
            q, k, v = (h @ w[p + f"self_attn.{c}_proj.weight"].T for c in "qkv")
            q = rms(q, w[p + "self_attn.q_norm.weight"]).view(2, 4, 12)
            k = rms(k, w[p + "self_attn.k_norm.weight"]).view(2, 4, 12)
            q = q * c + torch.cat([-q[..., 6:], q[..., :6]], -1) * s
            k = k * c + torch.cat([-k[..., 6:], k[..., :6]], -1) * s
            k, v = k[:, :, None], v.view(2, 4, 1, 12)
            if past[i] is not None:
                k, v = torch.cat([past[i][0], k], 2), torch.cat([past[i][1], v], 2)
            past[i] = k, v
            a = torch.softmax((q[:, :, None] @ k.mT / 12**0.5).float(), -1).to(q) @ v
            h = h + rms(a.reshape(2, 48) @ w[p + "self_attn.o_proj.weight"].T, w[p + "post_attention_layernorm.weight"])
            m = F.silu(h @ w[p + "mlp.gate_proj.weight"].T) * (h @ w[p + "mlp.up_proj.weight"].T)
            h = h + rms(m @ w[p + "mlp.down_proj.weight"].T, w[p + "post_feedforward_layernorm.weight"])
        done.append(rms(h, w["model.norm.weight"]) @ w["lm_head.weight"].T)
    return torch.stack(done, 1)


# ---------------------------------------------------------------- Qwen2-MoE: experts of which not all weights add up to one


def mixture_model():
    return made(
        transformers.Qwen2MoeForCausalLM(
            transformers.Qwen2MoeConfig(
                vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                shared_expert_intermediate_size=40, max_position_embeddings=64,
            )
        )
    )  # fmt: skip


def mixture_a(dtype):
    model, x = mixture_model().to(dtype), tokens(2, 9)
    return lambda: logits(model, x)


def mixture_b(wrong, dtype):
    w, x = weights(mixture_model(), dtype), tokens(2, 9)
    return lambda: mixture_port(w, x, wrong)


def mixture_port(w, ids, wrong):
    b, t = ids.shape
    h = F.embedding(ids, w["model.embed_tokens.weight"])
    f = torch.outer(torch.arange(t).float(), 1.0 / 10000 ** (torch.arange(0, 8, 2) / 8))
    c, s = f.cos().repeat(1, 2).to(h), f.sin().repeat(1, 2).to(h)
    for i in range(2):
        p = f"model.layers.{i}."
        n = rms(h, w[p + "input_layernorm.weight"])
        a = p + "self_attn."
        q = F.linear(n, w[a + "q_proj.weight"], w[a + "q_proj.bias"]).view(b, t, 4, 8).transpose(1, 2)
        if wrong == "bias of the keys forgotten":
            k = (
                F.linear(n, w[a + "k_proj.weight"]).view(b, t, 2, 8).transpose(1, 2)
            )  # wrong: bias of the keys forgotten
        else:
            k = F.linear(n, w[a + "k_proj.weight"], w[a + "k_proj.bias"]).view(b, t, 2, 8).transpose(1, 2)
        v = F.linear(n, w[a + "v_proj.weight"], w[a + "v_proj.bias"]).view(b, t, 2, 8).transpose(1, 2)
        q = q * c + torch.cat([-q[..., 4:], q[..., :4]], -1) * s
        k = k * c + torch.cat([-k[..., 4:], k[..., :4]], -1) * s
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        h = h + F.linear(o.transpose(1, 2).flatten(2), w[a + "o_proj.weight"])
        n = rms(h, w[p + "post_attention_layernorm.weight"]).view(-1, 32)
        m = p + "mlp."
        score = F.linear(n, w[m + "gate.weight"]).float()
        if wrong == "softmax after the choice":
            gate, which = score.topk(2)
            gate = gate.softmax(-1)  # wrong: softmax after the choice
        else:
            gate, which = score.softmax(-1).topk(2)  # wrong: softmax after the choice
        if wrong == "made to add up to one":
            gate = gate / gate.sum(-1, keepdim=True)  # wrong: made to add up to one
        dense = (
            torch.zeros_like(score).scatter(1, which, gate).to(n)
        )  # wrong: softmax after the choice, made to add up to one
        up = torch.einsum("nd,efd->enf", n, w[m + "experts.gate_up_proj"])
        if wrong == "gate and up in turns":
            act = F.silu(up[..., ::2]) * up[..., 1::2]  # wrong: gate and up in turns
        else:
            act = F.silu(up[..., :24]) * up[..., 24:]
        each = torch.einsum("enf,edf->end", act, w[m + "experts.down_proj"])
        y = torch.einsum("end,ne->nd", each, dense)
        x1 = F.silu(n @ w[m + "shared_expert.gate_proj.weight"].T) * (n @ w[m + "shared_expert.up_proj.weight"].T)
        shared = x1 @ w[m + "shared_expert.down_proj.weight"].T
        if wrong == "shared expert not gated":
            y = y + shared  # wrong: shared expert not gated
        else:
            y = y + shared * torch.sigmoid(n @ w[m + "shared_expert_gate.weight"].T)
        h = h + y.view(b, t, 32)
    return rms(h, w["model.norm.weight"]) @ w["lm_head.weight"].T


# ---------------------------------------------------------------- Cohere: neighbours turned, norm without bias, scaled logits


def cohere_model():
    return made(
        transformers.CohereForCausalLM(
            transformers.CohereConfig(
                vocab_size=60, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, logit_scale=0.25, max_position_embeddings=64, pad_token_id=0, bos_token_id=1,
                eos_token_id=2,
            )
        )
    )  # fmt: skip


def cohere_a(dtype):
    model, x = cohere_model().to(dtype), tokens(2, 11)
    return lambda: logits(model, x)


def cohere_b(wrong, dtype):
    w, x = weights(cohere_model(), dtype), tokens(2, 11)
    return lambda: cohere_port(w, x, wrong)


def cohere_port(w, ids, wrong):
    emb = w["model.embed_tokens.weight"]
    t = ids.shape[1]
    first = 1 if wrong == "positions from one" else 0
    h = emb[ids]

    def norm(x, weight):
        y = x.float()
        if wrong == "norm does not centre":
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)  # wrong: norm does not centre
        else:
            y = (y - y.mean(-1, keepdim=True)) * torch.rsqrt(y.var(-1, correction=0, keepdim=True) + 1e-5)
        return (y * weight.float()).to(x.dtype)

    def turn(x):
        angle = torch.arange(first, t + first).float()[:, None] * 500000.0 ** (-torch.arange(6) / 6)
        cos, sin = angle.cos(), angle.sin()
        x = x.float()
        if wrong == "halves turned":
            even, odd = x[..., :6], x[..., 6:]  # wrong: halves turned
            return torch.cat([even * cos - odd * sin, odd * cos + even * sin], -1).to(h.dtype)  # wrong: halves turned
        even, odd = x[..., ::2], x[..., 1::2]
        return (
            torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2).to(h.dtype)
        )  # wrong: halves turned

    for i in range(2):
        p = f"model.layers.{i}."
        n = norm(h, w[p + "input_layernorm.weight"])
        q, k, v = (
            torch.einsum("btd,hed->bhte", n, w[p + f"self_attn.{c}_proj.weight"].view(-1, 12, 48)) for c in "qkv"
        )
        q, k = turn(q), turn(k)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        s = (q @ k.mT).float() / math.sqrt(12)
        s = s.masked_fill(torch.ones(t, t).triu(1).bool(), -1e9)
        a = torch.einsum("bhts,bhse->bthe", s.softmax(-1).to(v), v).flatten(2)
        a = a @ w[p + "self_attn.o_proj.weight"].T
        if wrong == "branches one after the other":
            n = norm(h + a, w[p + "input_layernorm.weight"])  # wrong: branches one after the other
        g = F.silu(n @ w[p + "mlp.gate_proj.weight"].T) * (
            n @ w[p + "mlp.up_proj.weight"].T
        )  # wrong: branches one after the other
        h = h + (a + g @ w[p + "mlp.down_proj.weight"].T)
    h = norm(h, w["model.norm.weight"])
    if wrong == "logits divided by the scale":
        return h @ emb.T / 0.25  # wrong: logits divided by the scale
    return h @ (emb.T * 0.25)


# ---------------------------------------------------------------- Granite: four multipliers


def granite_model():
    return made(
        transformers.GraniteForCausalLM(
            transformers.GraniteConfig(
                vocab_size=60, hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=2, embedding_multiplier=6.0, attention_multiplier=0.15, residual_multiplier=0.4,
                logits_scaling=3.0, max_position_embeddings=64,
            )
        )
    )  # fmt: skip


def granite_a(dtype):
    model, x = granite_model().to(dtype), tokens(2, 11)
    return lambda: logits(model, x)


def granite_b(wrong, dtype):
    model = granite_model().to(dtype)
    x = tokens(2, 11)
    if wrong == "+left padded":
        return lambda: granite_padded(model, x)
    if wrong == "+one sentence at a time":
        return lambda: torch.cat([logits(model, each[None]) for each in x])
    if wrong == "+with a cache":
        return lambda: granite_cached(model, x)
    if wrong == "+functional call":
        w = dict(model.named_parameters())
        return lambda: torch.func.functional_call(model, w, (x,), {"use_cache": False}).logits.detach()
    w = weights(model, dtype)
    return lambda: granite_port(w, x, wrong)


@torch.no_grad()
def granite_padded(model, x):
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), x], 1)
    mask = torch.cat([torch.zeros(2, 3, dtype=torch.long), torch.ones_like(x)], 1)
    at = (mask.cumsum(-1) - 1).clamp(min=0)
    return model(padded, attention_mask=mask, position_ids=at, use_cache=False).logits[:, 3:]


@torch.no_grad()
def granite_cached(model, x):
    first = model(x[:, :6], use_cache=True)
    done, cache = [first.logits], first.past_key_values
    for at in range(6, x.shape[1]):
        step = model(x[:, at : at + 1], past_key_values=cache, use_cache=True)
        done.append(step.logits)
    return torch.cat(done, 1)


def granite_port(w, ids, wrong):
    b, t = ids.shape
    by = 1.0 if wrong == "embedding multiplier forgotten" else 6.0
    h = F.embedding(ids, w["model.embed_tokens.weight"]).mul(by)  # wrong: embedding multiplier forgotten
    f = torch.outer(torch.arange(t).float(), 1.0 / 10000 ** (torch.arange(0, 12, 2) / 12))
    c, s = f.cos().repeat(1, 2).to(h), f.sin().repeat(1, 2).to(h)
    scale = 12**-0.5 if wrong == "scale of the attention" else 0.15
    for i in range(3):
        p = f"model.layers.{i}."
        n = rms(h, w[p + "input_layernorm.weight"])
        q, k, v = ((n @ w[p + f"self_attn.{x}_proj.weight"].T).view(b, t, -1, 12).permute(0, 2, 1, 3) for x in "qkv")
        q = q * c + torch.cat(q.neg().chunk(2, -1)[::-1], -1) * s * torch.tensor([1.0] * 6 + [-1.0] * 6).to(q)
        k = k * c + torch.cat(k.neg().chunk(2, -1)[::-1], -1) * s * torch.tensor([1.0] * 6 + [-1.0] * 6).to(k)
        a = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=True
        )  # wrong: scale of the attention
        a = a.permute(0, 2, 1, 3).reshape(b, t, 48) @ w[p + "self_attn.o_proj.weight"].T
        if wrong == "multiplier on the first branch only":
            h = torch.add(h, a, alpha=0.4)
        elif wrong == "multiplier on the residual":
            h = torch.add(a, h, alpha=0.4)  # wrong: multiplier on the residual
        else:
            h = torch.add(h, a, alpha=0.4)
        n = rms(h, w[p + "post_attention_layernorm.weight"])
        m = F.silu(n @ w[p + "mlp.gate_proj.weight"].T).mul_(n @ w[p + "mlp.up_proj.weight"].T)
        m = m @ w[p + "mlp.down_proj.weight"].T
        if wrong == "multiplier on the first branch only":
            h = h + m  # wrong: multiplier on the first branch only
        else:
            h = h + 0.4 * m
    out = rms(h, w["model.norm.weight"]) @ w["lm_head.weight"].T
    if wrong == "logits multiplied":
        return out * 3.0  # wrong: logits multiplied
    return out / 3.0


BOTH = (torch.float32, torch.bfloat16)
ONE = (torch.float32,)
FAMILIES = {
    "phi": (
        phi_a,
        phi_b,
        [
            "",
            "frequencies over all of the head",
            "one branch after the other",
            "exact gelu",
            "bias of the head forgotten",
            "rotary on all of the head",
            "+half",
        ],
        BOTH,
    ),
    "gemma3": (
        gemma3_a,
        gemma3_b,
        [
            "",
            "positions of full layers not scaled",
            "one theta for all layers",
            "full layer one too early",
            "heads taken in turns",
            "scale of the head",
            "window counts itself out",
            "norm after the sum",
            "+half",
        ],
        BOTH,
    ),
    "olmo": (
        olmo_a,
        olmo_b,
        [
            "",
            "norm of each head alone",
            "softmax over the queries",
            "norm before the branch",
            "eps of the last norm",
            "+one token at a time",
            "+half",
        ],
        BOTH,
    ),
    "mixture": (
        mixture_a,
        mixture_b,
        [
            "",
            "bias of the keys forgotten",
            "softmax after the choice",
            "made to add up to one",
            "gate and up in turns",
            "shared expert not gated",
            "+half",
        ],
        BOTH,
    ),
    "cohere": (
        cohere_a,
        cohere_b,
        [
            "",
            "norm does not centre",
            "halves turned",
            "branches one after the other",
            "logits divided by the scale",
            "+half",
        ],
        BOTH,
    ),
    "granite": (
        granite_a,
        granite_b,
        [
            "",
            "embedding multiplier forgotten",
            "scale of the attention",
            "multiplier on the residual",
            "multiplier on the first branch only",
            "logits multiplied",
            "+left padded",
            "+one sentence at a time",
            "+with a cache",
            "+functional call",
            "+half",
        ],
        BOTH,
    ),
}
PARAMETERS = {}
