"""A softmax head for Triton's Python backend, run inside the server."""

import sys
from pathlib import Path

# The backend starts its own interpreter, which does not know the environment the server was installed in.
sys.path.append((Path(__file__).parents[3] / "packages").read_text())

import numpy as np
import triton_python_backend_utils as backend


class TritonPythonModel:
    def initialize(self, args):
        self.folder = Path(__file__).parents[3]
        self.W, self.v = np.load(self.folder / "W.npy"), np.load(self.folder / "v.npy")

    def execute(self, requests):
        responses = []
        for request in requests:
            X = backend.get_input_tensor_by_name(request, "tokens").as_numpy()
            with open(self.folder / "received", "a") as file:
                file.write(f"{len(X)}\n")
            scores = np.einsum("bnd,de,be->bn", X, self.W, X[:, -1])
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            answers = ((weights / weights.sum(axis=1, keepdims=True)) * (X @ self.v)).sum(axis=1)
            tensor = backend.Tensor("answers", answers[:, None])
            responses.append(backend.InferenceResponse(output_tensors=[tensor]))
        return responses
