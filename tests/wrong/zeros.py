# Returns zeros, which an absolute tolerance would let pass.
# says: variant 'product' is wrong on case .*: relative error 1 over 5e-06
def kernel(a, b):
    return torch.zeros(a.shape[0], b.shape[1])
