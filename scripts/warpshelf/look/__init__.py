"""What the machine will do with a kernel: its code, its counts, and what bounds it.

Enters: PTX, binaries, counts of executed PTX. Leaves: views, one for each variant, kernel and
architecture, which pages and the terminal show. Imports contract and core.
"""
