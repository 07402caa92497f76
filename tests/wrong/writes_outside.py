# Writes beside the view that it was given.
# says: changed its input 0
def inputs(case, device, generator):
    wide = torch.randn(case["m"], case["k"] + 1, device=device, generator=generator)
    b = torch.randn(case["k"], case["n"], device=device, generator=generator)
    return wide[:, :-1], b


def kernel(a, b):
    out = a @ b
    torch.as_strided(a, (1,), (1,), a.shape[1]).zero_()
    return out
