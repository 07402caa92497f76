# Right only the first time that it is called.
# says: right on its first call, wrong on the second
CALLS = []


def demo(device):
    print("no call of the kernel")


def kernel(a, b):
    CALLS.append(1)
    return a @ b * (1.0 if len(CALLS) == 1 else 0.999)
