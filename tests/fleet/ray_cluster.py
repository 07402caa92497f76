"""A Ray cluster of several nodes on this machine, in a process of its own.

    python ray_cluster.py '{"num_cpus": 2}'

starts the head, and then obeys one JSON object a line: `{"add": {…}}` adds a node with such
resources, `{"kill": "NODE ID"}` ends one as a power cut would; each is answered by a line of JSON.
The end of its input ends it all. It is no part of pytest's process: Ray leaves threads and open
files behind, and kills what it takes for its own.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"

STORE = 80 * 2**20
# A node that is gone is noticed in seconds; by default it takes half a minute. And a worker that
# did not start is started again in less than a minute: nodes on one machine share the folder of the
# checkout's copy, and one may take it away while a worker of another enters it.
HEALTH = {
    "worker_register_timeout_seconds": 10,
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 5,
    "health_check_timeout_ms": 3000,
}


def main() -> None:
    from ray.cluster_utils import Cluster

    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    head = {
        "num_gpus": 0,
        "include_dashboard": False,
        "object_store_memory": STORE,
        "_system_config": HEALTH,
    }
    cluster = Cluster(initialize_head=True, head_node_args=head | json.loads(sys.argv[1]))
    nodes = {}
    print(json.dumps({"address": cluster.address}), file=said, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "add" in order:
            new = [cluster.add_node(object_store_memory=STORE, **one) for one in order["add"]]
            nodes |= {one.node_id: one for one in new}
            answer = {"nodes": [one.node_id for one in new]}
        else:
            cluster.remove_node(nodes.pop(order["kill"]), allow_graceful=False)
            answer = {"killed": order["kill"]}
        print(json.dumps(answer), file=said, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
