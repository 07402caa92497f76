# Never ends.
# says: still running after 2 s in variant 'product' on case
NEEDS = {"seconds": 2}


def demo():
    print("no call of the kernel")


def kernel(a, b):
    while True:
        pass
