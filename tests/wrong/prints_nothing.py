# Prints nothing.
# says: demo\(\) printed nothing
def demo():
    pass
