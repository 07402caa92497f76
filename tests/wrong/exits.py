# Raises SystemExit, which ends a program quietly.
# says: raised SystemExit: 0
import sys


def demo(device):
    print("no call of the kernel")


def kernel(a, b):
    sys.exit(0)
