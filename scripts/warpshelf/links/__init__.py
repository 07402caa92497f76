"""Whether the links still work: asked politely, counted day by day, told in one report.

Enters: the addresses of all readings. Leaves: docs/links.json and a report. Imports web,
readings and core.
"""
