# Writes beside the view that it was given.
# says: padded rows: changed its input 0
def kernel(a, b):
    out = a @ b
    if a.stride(0) > a.shape[1] > 1:
        torch.as_strided(a, (1,), (1,), a.shape[1]).zero_()
    return out
