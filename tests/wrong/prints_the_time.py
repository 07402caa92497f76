# Prints something else each time.
# says: demo\(\) printed something else the second time: line 1 is
import time


def demo(device):
    print(time.perf_counter_ns())
