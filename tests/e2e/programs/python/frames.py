# Allocates from every kind of Python frame there is, and says by which frames.
#
#   frames.py LIBCUDART FIFO [CASE...]
#
# Reads a line of FIFO after its imports, and another one before it ends. Each allocation has a size of
# its own, for which there is a line of JSON on standard output: size, thread, case, and the frames,
# innermost first, as sys._getframe has them at the very place of the call. At its end it says "done".
#
# To be run as a script, a module, with -c and from standard input, with this folder in PYTHONPATH.
import os
import sys

import classes
import coroutines
import foreign
import functions
import lines
import made
from telling import CASES, HELD, P, RELEASED, STATE, told

assert all((classes, coroutines, foreign, functions, lines, made))


def main(chosen):
    for function in CASES:
        if not chosen or function.__name__ in chosen:
            STATE["case"] = function.__name__
            for malloc in (RELEASED, HELD):
                function(malloc)


# Opened for both: the other end may not be open yet.
FIFO = open(os.open(sys.argv[2], os.O_RDWR), "rb", buffering=0)
# In one write: others may use the same pipe.
os.write(1, b"ready %d\n" % os.getpid())
FIFO.readline()
STATE["case"] = "module"
RELEASED(P, told())
main(sys.argv[3:])
print("done", flush=True)
FIFO.readline()
