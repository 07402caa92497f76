"""One run: stale snippets are planned, run in children, recorded and compared.

Enters: snippets and options. Leaves: verdicts and records. Imports worker, records, contract and
core; it reaches a bare machine.
"""
