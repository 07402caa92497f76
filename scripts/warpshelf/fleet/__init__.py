"""A fleet: stale snippets run on a Ray cluster, on each kind of machine, into one bundle.

Enters: snippets, the address of a cluster. Leaves: verdicts, one bundle of records. Ray places,
retries and notices lost nodes. Imports bench, records, contract and core; the only room with Ray.
"""
