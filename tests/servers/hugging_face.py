"""A small Llama as a Hugging Face folder, with a tokenizer of made-up words, and vLLM serving it on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.servers.foreign import free_port, running
from unsoftmax.serving.llama import Llama


def write_folder(model: Llama, folder: Path) -> None:
    """config.json, model.safetensors (float32) and a tokenizer whose word for the id 7 is t7."""
    block, d, V = model.blocks[0], model.dim, model.vocabulary
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": d,
        "intermediate_size": block.up.shape[1],
        "num_hidden_layers": len(model.blocks),
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": block.q.shape[1] // model.heads,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": model.base,
        "max_position_embeddings": 2048,
        "vocab_size": V,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {"model.embed_tokens.weight": model.embeddings, "model.norm.weight": model.final_norm}
    tensors["lm_head.weight"] = model.unembedding
    for i, block in enumerate(model.blocks):
        part = f"model.layers.{i}"
        tensors[f"{part}.self_attn.q_proj.weight"] = _halves(block.q, model.heads).T
        tensors[f"{part}.self_attn.k_proj.weight"] = _halves(block.k, model.kv_heads).T
        tensors[f"{part}.self_attn.v_proj.weight"] = block.v.T
        tensors[f"{part}.self_attn.o_proj.weight"] = block.o.T
        for name in ("gate", "up", "down"):
            tensors[f"{part}.mlp.{name}_proj.weight"] = getattr(block, name).T
        tensors[f"{part}.input_layernorm.weight"] = block.attention_norm
        tensors[f"{part}.post_attention_layernorm.weight"] = block.network_norm
    held = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in tensors.items()}
    save_file(held, folder / "model.safetensors", {"format": "pt"})
    words = {f"t{i}": i for i in range(V)}
    spoken = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(spoken))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


def _halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """Columns (d, H dh) for rotary pairs (i, i + dh/2) in place of neighbours (2i, 2i + 1)."""
    d, columns = weight.shape
    return weight.reshape(d, heads, columns // heads // 2, 2).swapaxes(2, 3).reshape(d, columns)


def vllm_python() -> str | None:
    """The Python that has vLLM: VLLM_PYTHON, else this one; None if it has not."""
    python = os.environ.get("VLLM_PYTHON", sys.executable)
    try:
        found = subprocess.run([python, "-c", "import vllm"], capture_output=True, check=False)
    except OSError:
        return None
    return python if found.returncode == 0 else None


@contextmanager
def vllm_server(model: Llama, folder: Path) -> Iterator[str]:
    """The address of vLLM with everything open: all log-probabilities, after the bias, and prompt embeds."""
    python = vllm_python()
    assert python is not None
    write_folder(model, folder)
    port = free_port()
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--served-model-name", "model"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", "256"]
    command += ["--max-logprobs", "-1", "--logprobs-mode", "processed_logprobs", "--enable-prompt-embeds"]
    command += ["--return-tokens-as-token-ids", "--enforce-eager"]
    with running(command, folder, port, {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}, "health", 600.0) as s:
        yield s.url
