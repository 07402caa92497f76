# Never ends.
# says: still running after 2 s in variant 'product' on case


def demo(device):
    print("no call of the kernel")


def kernel(a, b):
    while True:
        pass
# ---- cases.py ----
NEEDS = {"seconds": 2}
