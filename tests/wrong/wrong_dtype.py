# Returns float64, more exact than what was asked.
# says: dtype float64 where float32 is due
def kernel(a, b):
    return a.double() @ b.double()
