"""The site as a whole: rendered, checked, built and served.

Enters: everything below. Leaves: build/fragments/, docs/records/, docs/views/, docs/exports/ and
site/. MkDocs is a program of its own here: `preview` alone imports it.
"""
