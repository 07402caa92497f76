"""What every room stands on: the checkout, findings, files written whole, units, markup, pages.

Enters: nothing. Leaves: plain types and functions. Imports the standard library and PyYAML alone.
"""
