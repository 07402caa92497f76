# Raises in the kernel.
# says: :\d+: raised ZeroDivisionError: .* in variant 'product' on case
def demo(device):
    print("no call of the kernel")


def kernel(a, b):
    return a / (1 // 0)
