"""What happens inside a child process: import, verify, time and compile one snippet.

Enters: a job as a dict. Leaves: its answer as JSON. Imports records, contract and core; torch and
Triton are imported here and nowhere else.
"""
