"""Readings as people meet them: lists, single entries, learning paths, bibliography, feeds.

Enters: the shelf, the health of its links, the pages. Leaves: HTML, Markdown and files for other
programs. Imports render, links, readings and core.
"""
