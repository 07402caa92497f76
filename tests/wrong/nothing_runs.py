# Skips its only variant, so nothing is verified.
# says: nothing was executed: every variant was skipped
NEEDS = {"variants": {"product": {"cpu": "no reason"}}}


def demo():
    print("no call of the kernel")
