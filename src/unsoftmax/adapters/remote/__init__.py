"""Models on servers: one transport, one contract of faults, one file per wire.

address      what an address may be, and which are on this machine
transport    sending, pacing, trying once more, limits on what comes back
oip          Open Inference Protocol v2 (KServe, Triton, MLServer)
steadiness   how far answers to one question lie apart: the tolerance
wire         what the JSON wires below share: prompts or vectors in, numbers out
openai       completions, chat and embeddings as OpenAI and vLLM speak them
llama_cpp    llama.cpp's own server
sglang       SGLang's own server
tei          Hugging Face Text Embeddings Inference
"""
