# Multiplies in float16: near, but not near enough.
# says: relative error
def kernel(a, b):
    return (a.half() @ b.half()).float()
