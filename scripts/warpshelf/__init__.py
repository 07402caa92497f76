"""Warpshelf's tooling: runs the snippets, keeps their records, renders the pages."""
