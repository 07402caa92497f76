"""A reading on its way in: an address, a form or a slip, turned into lines of a list.

Enters: what a person gave. Leaves: changed YAML that reads back the same but for the change.
Imports web, readings and core.
"""
