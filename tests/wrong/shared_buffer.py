# Writes every result into one buffer.
# says: the second call changed the result of the first
BUFFERS = {}


def kernel(a, b):
    out = BUFFERS.setdefault((a.shape, b.shape), torch.empty(a.shape[0], b.shape[1]))
    return torch.matmul(a, b, out=out)
