# Draws zeros, on which most wrong kernels are right.
# says: input 0 is all zeros on case
# ---- cases.py ----
def inputs(case, device, generator):
    return torch.zeros(case["m"], case["k"]), torch.zeros(case["k"], case["n"])
