# Prints what is not UTF-8.
# says: demo\(\) printed the byte 0xff, which is not UTF-8
import sys


def demo(device):
    sys.stdout.flush()
    sys.stdout.buffer.write(b"caf\xff\n")
