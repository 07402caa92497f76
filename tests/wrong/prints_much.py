# Prints ten megabytes.
# says: printed more than 1048576 bytes in demo\(\)
def demo(device):
    for _ in range(10_000):
        print("x" * 1000)
