# train.py LR LAYERS EPOCHS: the loss after these epochs; 8 layers do not fit into memory.
import math
import sys

lr, layers, epochs = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if layers == 8:
    sys.exit("out of memory")
loss = (math.log10(lr) + 3) ** 2 + (layers - 3) ** 2 / 10 + 1 / epochs
print(f"loss={loss}")
