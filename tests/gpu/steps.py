"""The steps of a program on its command line: NAME[=NUMBER[,NUMBER]] ...

After each the program prints what it has done, as one JSON line; after `wait`
it goes on when a line comes on standard input, with the steps in that line if it has some.
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


def line_of(path, mark):
    """The number of the line with this comment at its end."""
    with open(path, encoding="utf-8") as source:
        return next(number for number, text in enumerate(source, 1) if text.rstrip().endswith(f"# {mark}"))


def run(table, truth):
    """Runs the steps. `table` has a function for each name, None for `wait`;
    `truth` returns what to print."""
    program = os.path.basename(sys.argv[0])
    steps = sys.argv[1:]
    for text in steps:
        if parse(text)[0] not in table:
            sys.exit(f"{program}: unknown step {text}")
    while steps:
        name, numbers = parse(steps.pop(0))
        function = table[name]
        if function:
            function(*numbers)
        print(json.dumps({"step": name, "pid": os.getpid(), **truth()}), flush=True)
        if not function:
            line = sys.stdin.readline()
            # If standard input is closed, nothing reads the output either.
            if not line:
                print(f"{program}: standard input ended at a wait", file=sys.stderr)
                sys.exit(3)
            steps[:0] = line.split()
