"""Records as Markdown: tables, plots, listings and their provenance, ready to be embedded.

Enters: snippets and their records. Leaves: text. Imports records, readings, look, contract
and core; it imports neither torch nor MkDocs.
"""
