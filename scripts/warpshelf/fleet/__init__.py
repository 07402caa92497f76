"""A fleet: what is stale, spread over a Ray cluster by kind of machine, and brought home as one.

Enters: snippets, the address of a cluster. Leaves: verdicts, one bundle of records. Ray places,
retries and notices lost nodes. Imports bench, records, contract and core; the only room with Ray.
"""
