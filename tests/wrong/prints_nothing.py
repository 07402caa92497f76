# Prints nothing.
# says: demo\(\) printed nothing
def demo(device):
    pass
