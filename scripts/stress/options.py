"""The options of the stress programs, and the types of their values."""

import argparse

import backends

MB = 1 << 20
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text):
    """Bytes, with K, M or G after the number for powers of 1,024.

    >>> size("4096"), size("64K"), size("1.5m")
    (4096, 65536, 1572864)
    """
    unit = text[-1:].upper().strip("0123456789.")
    try:
        size_bytes = int(float(text[: len(text) - len(unit)]) * UNITS[unit])
    except (KeyError, ValueError):
        size_bytes = 0
    if size_bytes <= 0:
        raise argparse.ArgumentTypeError(f"{text} is no size: expected a number with K, M or G")
    return size_bytes


def number(minimum, maximum=float("inf"), kind=float):
    """The type of an option: a number in a range.

    >>> number(0, 1)("0.25"), number(1, kind=int)("3")
    (0.25, 3)
    """

    def parse(text):
        value = kind(text)
        if not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(f"{text} is not in {minimum} to {maximum}")
        return value

    parse.__name__ = kind.__name__  # argparse says it of text that is no number
    return parse


count = number(0, kind=int)
amount = number(1, kind=int)
ratio = number(0, 1)
seconds = number(0)
megabytes = number(1e-6)


def add_threads(parser):
    parser.add_argument(
        "--threads", type=amount, default=4, metavar="N", help="that allocate"
    )


def add_sizes(parser, smallest_mb, largest_mb):
    for name, default, which in (("min", smallest_mb, "smallest"), ("max", largest_mb, "largest")):
        parser.add_argument(
            f"--{name}-mb",
            type=megabytes,
            default=default,
            metavar="MB",
            help=f"of the {which} block",
        )


def add_iterations(parser, sleep_ms, sleeps, ends):
    """How long each iteration takes, and how many there are."""
    parser.add_argument("--sleep-ms", type=seconds, default=sleep_ms, metavar="MS", help=sleeps)
    parser.add_argument(
        "--iterations",
        type=count,
        default=0,
        metavar="N",
        help=f"end each {ends}; 0: at the end of the duration",
    )


def parser_of(description):
    """A parser with the options that every program has."""
    parser = argparse.ArgumentParser(
        description=description, epilog=backends.COUNTED, formatter_class=Formatter
    )
    add = parser.add_argument
    add("--seed", type=int, default=1, help="of everything that is left to chance")
    add("--duration", type=seconds, default=10.0, metavar="S", help="0: until a signal comes")
    add("--backend", choices=backends.CHOICES, default="auto", help="auto: the first installed")
    add("--device", type=count, default=0, metavar="N", help="number of the GPU")
    add("--libcudart", default="libcudart.so.12", metavar="FILE", help="for --backend runtime")
    add("--wait", action="store_true", help="for a line on standard input before the first call")
    return parser


class Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks, and shows defaults."""
