# Leaves the last row of its output unwritten.
# says: never wrote 1 of 1 elements, the first at \(0, 0\)
def kernel(a, b):
    out = torch.empty(a.shape[0], b.shape[1])
    out[:-1] = (a @ b)[:-1]
    return out
