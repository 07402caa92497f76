# Skips its only variant, so nothing is verified.
# says: nothing was executed: every variant was skipped


def demo(device):
    print("no call of the kernel")
# ---- cases.py ----
NEEDS = {"variants": {"product": {"cpu": "no reason"}}}
