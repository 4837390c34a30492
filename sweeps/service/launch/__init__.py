"""Training of packs on Ray, on this machine or on a cluster.  The only importers of Ray.

``runner`` drives a run, ``cluster`` starts or joins Ray, ``fit`` hands packs to Ray Tune, ``trial`` is what a worker
does, and ``keeper`` brings checkpoints to the driver where machines share no storage.
"""

from sweeps.service.launch.runner import RayRunner

__all__ = ["RayRunner"]
