# Reads address 0.
# says: was ended by SIGSEGV in variant 'product' on case
import ctypes


def demo(device):
    print("no call of the kernel")


def kernel(a, b):
    return ctypes.string_at(0)
