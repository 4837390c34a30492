"""What ``ray start`` calls before it starts a node of the tests (``RAY_START_HOOK``)."""

from __future__ import annotations

from typing import Any


def without_client_server(parameters: Any, head: bool) -> None:
    """Leave out the server for ``ray://`` addresses: its port is fixed on 127.0.0.1, and two heads would collide."""
    parameters.ray_client_server_port = None
