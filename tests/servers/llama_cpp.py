"""A llama.cpp server in a process of its own, on loopback, with a small random Llama written as GGUF."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from unsoftmax.serving.llama import Llama

_SERVE = """
import sys, time, xllamacpp as x
p = x.CommonParams()
p.model.path = sys.argv[1]
p.port, p.hostnames = 0, ["127.0.0.1"]
p.n_ctx, p.n_parallel, p.warmup = 2048, 2, False
p.cpuparams.n_threads = 1
if "exact" in sys.argv[3:]:
    p.cache_type_k = p.cache_type_v = x.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
p.embedding = sys.argv[2] == "embedding"
if p.embedding:
    p.pooling_type = x.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
s = x.Server(p)
print("listening at", s.listening_address, flush=True)
time.sleep(10**6)
"""


def write_gguf(model: Llama, path: Path) -> None:
    """The model as llama.cpp reads it: float32, rotary pairs of neighbouring coordinates, made-up words."""
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    d, V = model.dim, model.vocabulary
    block = model.blocks[0]
    writer.add_context_length(2048)
    writer.add_embedding_length(d)
    writer.add_block_count(len(model.blocks))
    writer.add_feed_forward_length(block.up.shape[1])
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(d // model.heads)
    writer.add_rope_freq_base(model.base)
    writer.add_vocab_size(V)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, V)])
    writer.add_token_scores([0.0] * V)
    writer.add_token_types([2, 3, 3] + [1] * (V - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")

    def put(name: str, weight: np.ndarray) -> None:
        writer.add_tensor(name, np.ascontiguousarray(weight, dtype=np.float32))

    put("token_embd.weight", model.embeddings)
    put("output_norm.weight", model.final_norm)
    put("output.weight", model.unembedding)
    for i, block in enumerate(model.blocks):
        for name in ("q", "k", "v"):
            put(f"blk.{i}.attn_{name}.weight", getattr(block, name).T)
        put(f"blk.{i}.attn_output.weight", block.o.T)
        put(f"blk.{i}.ffn_gate.weight", block.gate.T)
        put(f"blk.{i}.ffn_up.weight", block.up.T)
        put(f"blk.{i}.ffn_down.weight", block.down.T)
        put(f"blk.{i}.attn_norm.weight", block.attention_norm)
        put(f"blk.{i}.ffn_norm.weight", block.network_norm)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@contextmanager
def llama_cpp_server(gguf_path: Path, mode: str = "completion", exact: bool = True) -> Iterator[str]:
    """The address of the server; its own words go nowhere. Keys and values are kept in float32 if `exact`, else as
    the server does by default, in float16."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(gguf_path), mode, *(["exact"] if exact else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("listening at"):
                address = line.split()[-1]
                yield address if address.startswith("http") else f"http://{address}"
                return
        raise AssertionError("the llama.cpp server ended before it listened")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
