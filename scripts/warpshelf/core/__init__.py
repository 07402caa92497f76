"""What every room uses: the checkout, findings, atomic files, units, markup, pages.

Enters: nothing. Leaves: plain types and functions. Imports the standard library and PyYAML alone.
"""
