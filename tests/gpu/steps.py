"""The steps of a program on its command line: NAME[=NUMBER[,NUMBER]] ...

After each the program prints what it has done, as one JSON line; after `wait`
it goes on when a line comes on standard input.
"""

import json
import os
import sys


def parse(text):
    """(name, numbers) of a step.

    >>> parse("train=20"), parse("wait")
    (('train', [20]), ('wait', []))
    """
    name, _, numbers = text.partition("=")
    return name, [int(number) for number in numbers.split(",") if number]


def run(table, truth):
    """Runs the steps. `table` has a function for each name, None for `wait`;
    `truth` returns what to print."""
    program = os.path.basename(sys.argv[0])
    steps = [parse(text) for text in sys.argv[1:]]
    for name, _ in steps:
        if name not in table:
            sys.exit(f"{program}: unknown step {name}")
    for name, numbers in steps:
        function = table[name]
        if function:
            function(*numbers)
        print(json.dumps({"step": name, "pid": os.getpid(), **truth()}), flush=True)
        # If standard input is closed, nothing reads the output either.
        if not function and not sys.stdin.readline():
            print(f"{program}: standard input ended at a wait", file=sys.stderr)
            sys.exit(3)
