# Is no Python.
# says: :\d+: is not valid Python: expected ':'
def kernel(a, b)
    return a @ b
