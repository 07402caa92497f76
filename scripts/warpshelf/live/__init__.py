"""Calculators: models that a page computes with what its reader types.

Enters: `calculator.py` of a snippet, and Pyodide where it can be had. Leaves: the form with the
results of its defaults, and what a browser needs to work out others. `form` and what it imports
run in both places, so a number looks alike wherever it was computed; they need Python's own
library alone. Imports render, contract and core.
"""
