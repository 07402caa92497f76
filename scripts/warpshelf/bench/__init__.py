"""One run: what is stale is planned, given to children, gathered into records, compared.

Enters: snippets and options. Leaves: verdicts and records. Imports worker, records, contract and
core; it reaches a bare machine.
"""
