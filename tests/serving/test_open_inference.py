"""The practice server: what it refuses, without a socket."""

from __future__ import annotations

import json

import numpy as np
import pytest
from starlette.testclient import TestClient

import unsoftmax as us
from unsoftmax.serving.open_inference import Service, application

HEAD = us.models.SingleHead.random(3, seed=0)
GOOD = {"name": "tokens", "datatype": "FP64", "shape": [1, 1, 3], "data": [1.0, 2.0, 3.0]}


@pytest.fixture
def client():
    return TestClient(application(Service(HEAD, max_batch=4)))


def infer(client, body, **headers):
    content = body if isinstance(body, bytes) else json.dumps(body)
    return client.post("/v2/models/model/infer", content=content, headers=headers)


def test_answers_and_counts(client):
    response = infer(client, {"id": "x", "inputs": [GOOD]})
    assert response.json()["id"] == "x"
    assert response.json()["outputs"][0]["data"] == HEAD(np.array([[[1.0, 2.0, 3.0]]])).tolist()
    nested = infer(client, {"inputs": [{**GOOD, "data": [[[1.0, 2.0, 3.0]]]}]})
    assert nested.json()["outputs"] == response.json()["outputs"]
    stats = client.get("/v2/models/model/stats").json()["model_stats"][0]
    assert stats["inference_count"] == 2
    assert client.get("/v2/models/model/ready").status_code == client.get("/v2/health/live").status_code == 200
    assert client.get("/v2/models/other").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[1]",
        {},
        {"inputs": []},
        {"inputs": [GOOD, GOOD]},
        {"inputs": [{**GOOD, "name": "pixels"}]},
        {"inputs": [{**GOOD, "datatype": "BYTES"}]},
        {"inputs": [{**GOOD, "shape": [1, 1, 4]}]},
        {"inputs": [{**GOOD, "shape": [1, -1, 3]}]},
        {"inputs": [{**GOOD, "shape": "large"}]},
        {"inputs": [{**GOOD, "shape": [5, 1, 3], "data": [0.0] * 15}]},
        {"inputs": [{**GOOD, "data": None}]},
        {"inputs": [{**GOOD, "data": [1.0, [2.0], "x"]}]},
        {"inputs": [{**GOOD, "parameters": {"binary_data_size": 10**12}}]},
        b'{"inputs":' + b"[" * 100_000,
    ],
)
def test_bad_requests_are_refused_and_not_counted(client, body):
    response = infer(client, body)
    assert response.status_code == 400
    assert "error" in response.json()
    assert client.get("/v2/models/model/stats").json()["model_stats"][0]["inference_count"] == 0


def test_bad_lengths_are_refused(client):
    for length in ("-1", "9999999", "many"):
        header = {"Inference-Header-Content-Length": length}
        assert infer(client, {"inputs": [GOOD]}, **header).status_code == 400


def test_the_format_is_the_models_own():
    heads = us.models.SingleHead.random(3, seed=0).astype("float32")
    client = TestClient(application(Service(heads)))
    assert client.get("/v2/models/model").json()["inputs"][0]["datatype"] == "FP32"
    response = infer(client, {"inputs": [{**GOOD, "datatype": "FP32"}]})
    assert response.json()["outputs"][0]["data"] == heads(np.array([[[1.0, 2.0, 3.0]]], "f4")).tolist()
