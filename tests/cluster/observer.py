"""What a cluster looks like from inside, told by a process of its own.

``python -m tests.cluster.observer HOST:PORT`` joins the cluster as a driver without work and answers each line of its
standard input with one line of JSON, so that the tests themselves never call ``ray.init``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import ray
from ray._private.state import actors


def _nodes() -> list[dict[str, Any]]:
    return [
        {"name": node["NodeName"], "id": node["NodeID"], "alive": node["Alive"], "resources": node["Resources"]}
        for node in ray.nodes()
    ]


def _actors() -> list[dict[str, Any]]:
    return [
        {"id": key, "state": str(actor["State"]), "node": actor["Address"]["NodeID"], "class": actor["ActorClassName"]}
        for key, actor in actors().items()
    ]


QUESTIONS: dict[str, Callable[[], Any]] = {
    "nodes": _nodes,
    "actors": _actors,
    "available": ray.available_resources,
}


def main() -> None:
    # Ray itself tells of dead nodes on the standard output: answers keep the real one, the rest goes elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR, namespace="observer")
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(QUESTIONS[line.strip()]()), file=answers, flush=True)


if __name__ == "__main__":
    main()
