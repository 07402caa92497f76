# Right up to 64 rows.
# says: on case \{'m': 127, .*relative error
def kernel(a, b):
    out = a @ b
    out[64:] *= 1.001
    return out
