# Prints more lines than a page should hold.
# says: demo\(\) printed 31 lines; the limit is 30
def demo(device):
    for line in range(31):
        print(line)
