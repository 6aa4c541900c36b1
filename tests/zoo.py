"""Tiny transformers of many families, random weights and nothing downloaded: real architectures to record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

Built = tuple[nn.Module, dict[str, torch.Tensor]]

VOCABULARY = 99
TOKENS = 7

# The names that most configurations share.
USUAL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
}
GROUPED = USUAL | {"num_key_value_heads": 2}
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
IMAGE = {"image_size": 16, "patch_size": 8}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def family(config: str, model: str, inputs: Callable[[], dict[str, torch.Tensor]], **sizes: Any) -> Callable[[], Built]:
    """A builder: the same weights and inputs every time it is called; in eval mode."""

    def build() -> Built:
        torch.manual_seed(0)
        settings = getattr(transformers, config)(**sizes)
        network = getattr(transformers, model)(settings).eval()
        return network, inputs()

    return build


def tokens() -> dict[str, torch.Tensor]:
    """Two sentences of token ids."""
    return {"input_ids": torch.randint(3, VOCABULARY, (2, TOKENS))}


def both_sides() -> dict[str, torch.Tensor]:
    """Token ids for an encoder and for a decoder."""
    return tokens() | {"decoder_input_ids": torch.randint(3, VOCABULARY, (2, TOKENS - 2))}


def picture() -> dict[str, torch.Tensor]:
    """Two small images."""
    return {"pixel_values": torch.randn(2, 3, 16, 16)}


def picture_and_words() -> dict[str, torch.Tensor]:
    """Two small images and two sentences."""
    return picture() | tokens() | {"attention_mask": torch.ones(2, TOKENS, dtype=torch.long)}


def sound() -> dict[str, torch.Tensor]:
    """A short spectrogram, and the first words of what it says."""
    return {
        "input_features": torch.randn(1, 8, 20),
        "decoder_input_ids": torch.randint(3, VOCABULARY, (1, 4)),
    }


FAMILIES: dict[str, Callable[[], Built]] = {
    # decoders
    "gpt2": family(
        "GPT2Config",
        "GPT2LMHeadModel",
        tokens,
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        **SPECIAL,
    ),
    "llama": family("LlamaConfig", "LlamaForCausalLM", tokens, **GROUPED),
    "mistral": family("MistralConfig", "MistralForCausalLM", tokens, **GROUPED, sliding_window=4),
    "mixtral": family(
        "MixtralConfig", "MixtralForCausalLM", tokens, **GROUPED, num_local_experts=4, num_experts_per_tok=2
    ),
    "qwen2": family("Qwen2Config", "Qwen2ForCausalLM", tokens, **GROUPED),
    "qwen3": family("Qwen3Config", "Qwen3ForCausalLM", tokens, **GROUPED, head_dim=8),
    "gemma": family("GemmaConfig", "GemmaForCausalLM", tokens, **GROUPED, head_dim=8),
    "gemma2": family("Gemma2Config", "Gemma2ForCausalLM", tokens, **GROUPED, head_dim=8, sliding_window=4),
    "phi": family("PhiConfig", "PhiForCausalLM", tokens, **USUAL),
    "opt": family("OPTConfig", "OPTForCausalLM", tokens, **USUAL, ffn_dim=37, word_embed_proj_dim=32, **SPECIAL),
    "bloom": family(
        "BloomConfig", "BloomForCausalLM", tokens, vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4
    ),
    "gpt_neox": family("GPTNeoXConfig", "GPTNeoXForCausalLM", tokens, **USUAL),
    "gptj": family(
        "GPTJConfig",
        "GPTJForCausalLM",
        tokens,
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        rotary_dim=4,
        **SPECIAL,
    ),
    "codegen": family(
        "CodeGenConfig",
        "CodeGenForCausalLM",
        tokens,
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        rotary_dim=4,
        **SPECIAL,
    ),
    "mpt": family(
        "MptConfig",
        "MptForCausalLM",
        tokens,
        vocab_size=VOCABULARY,
        d_model=32,
        n_layers=2,
        n_heads=4,
        max_seq_len=64,
    ),
    "falcon": family(
        "FalconConfig",
        "FalconForCausalLM",
        tokens,
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
    ),
    "xglm": family(
        "XGLMConfig",
        "XGLMForCausalLM",
        tokens,
        vocab_size=VOCABULARY,
        d_model=32,
        num_layers=2,
        attention_heads=4,
        ffn_dim=37,
        max_position_embeddings=64,
        **SPECIAL,
    ),
    "phi3": family("Phi3Config", "Phi3ForCausalLM", tokens, **GROUPED, **SPECIAL),
    "olmo": family("OlmoConfig", "OlmoForCausalLM", tokens, **GROUPED),
    "olmo2": family("Olmo2Config", "Olmo2ForCausalLM", tokens, **GROUPED),
    "stablelm": family("StableLmConfig", "StableLmForCausalLM", tokens, **GROUPED),
    "starcoder2": family("Starcoder2Config", "Starcoder2ForCausalLM", tokens, **GROUPED),
    "cohere": family("CohereConfig", "CohereForCausalLM", tokens, **GROUPED, **SPECIAL),
    "granite": family("GraniteConfig", "GraniteForCausalLM", tokens, **GROUPED),
    "qwen2_moe": family(
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        tokens,
        **GROUPED,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=24,
    ),
    "gpt_neo": family(
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        tokens,
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        max_position_embeddings=64,
        **SPECIAL,
    ),
    "biogpt": family("BioGptConfig", "BioGptForCausalLM", tokens, **USUAL, **SPECIAL),
    # no attention
    "mamba": family(
        "MambaConfig",
        "MambaForCausalLM",
        tokens,
        vocab_size=VOCABULARY,
        hidden_size=32,
        state_size=4,
        num_hidden_layers=2,
    ),
    "rwkv": family(
        "RwkvConfig",
        "RwkvForCausalLM",
        tokens,
        vocab_size=VOCABULARY,
        hidden_size=32,
        attention_hidden_size=32,
        num_hidden_layers=2,
        context_length=64,
        use_cache=False,
    ),
    # encoders
    "bert": family("BertConfig", "BertForMaskedLM", tokens, **USUAL),
    "roberta": family("RobertaConfig", "RobertaForMaskedLM", tokens, **USUAL),
    "albert": family("AlbertConfig", "AlbertForMaskedLM", tokens, **USUAL, embedding_size=16),
    "distilbert": family(
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        tokens,
        vocab_size=VOCABULARY,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=37,
        max_position_embeddings=64,
    ),
    "electra": family("ElectraConfig", "ElectraForMaskedLM", tokens, **USUAL, embedding_size=16),
    "deberta_v2": family(
        "DebertaV2Config",
        "DebertaV2ForMaskedLM",
        tokens,
        **USUAL,
        relative_attention=True,
        pos_att_type="p2c|c2p",
    ),
    "mpnet": family("MPNetConfig", "MPNetForMaskedLM", tokens, **USUAL),
    "fnet": family("FNetConfig", "FNetForMaskedLM", tokens, **{k: v for k, v in USUAL.items() if "attention" not in k}),
    "roformer": family("RoFormerConfig", "RoFormerForMaskedLM", tokens, **USUAL, embedding_size=32),
    # encoder and decoder
    "t5": family(
        "T5Config",
        "T5ForConditionalGeneration",
        both_sides,
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=37,
        num_layers=2,
        num_heads=4,
    ),
    "bart": family(
        "BartConfig",
        "BartForConditionalGeneration",
        both_sides,
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=37,
        decoder_ffn_dim=37,
        max_position_embeddings=64,
        **SPECIAL,
    ),
    "whisper": family(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        sound,
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=37,
        decoder_ffn_dim=37,
        max_source_positions=10,
        max_target_positions=16,
        decoder_start_token_id=1,
        **SPECIAL,
    ),
    # pictures
    "vit": family("ViTConfig", "ViTForImageClassification", picture, **VISION, **IMAGE),
    "clip": family(
        "CLIPConfig",
        "CLIPModel",
        picture_and_words,
        text_config=USUAL | SPECIAL | {"eos_token_id": VOCABULARY - 1, "projection_dim": 16},
        vision_config=VISION | IMAGE | {"projection_dim": 16},
        projection_dim=16,
    ),
    "deit": family("DeiTConfig", "DeiTForImageClassification", picture, **VISION, **IMAGE),
    "convnext": family(
        "ConvNextConfig",
        "ConvNextForImageClassification",
        picture,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        num_stages=2,
        patch_size=2,
    ),
    "resnet": family(
        "ResNetConfig",
        "ResNetForImageClassification",
        picture,
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
    ),
}
