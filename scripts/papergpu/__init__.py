"""A GPU made of paper: PTX, as the real compilers write it, read and executed on a CPU.

PTX enters, what it computes leaves. This package knows nothing of the rest of the project.
"""
