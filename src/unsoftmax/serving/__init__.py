"""Servers for practice: what auditors meet, on loopback, with models whose weights are known.

open_inference   a reference model behind the Open Inference Protocol v2
llama            a small Llama-style language model
language_model   such a model behind the wires of OpenAI, llama.cpp, SGLang and Text Embeddings Inference
"""
