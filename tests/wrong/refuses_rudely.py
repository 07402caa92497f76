# Cannot take strided columns, and says so in words that do not begin with its name.
# says: column-strided: raised ValueError: columns must be adjacent
def kernel(a, b):
    if a.stride(1) != 1 and a.stride(0) != 1:
        raise ValueError("columns must be adjacent")
    return a @ b
