# Functions, and what the compiler makes of pieces of them.
import functools

from telling import P, case, told


@case
def plain(malloc):
    malloc(P, told())
    for _ in range(100):
        # Once specialised, other code of the interpreter runs.
        malloc(P, told())


@case
def nested(malloc):
    def outer():
        def inner():
            malloc(P, told())

        inner()
        (lambda: inner())()
        (lambda: malloc(P, told()))()

    outer()


@case
def several_calls_on_one_line(malloc):
    malloc(P, told()); malloc(P, told())  # fmt: skip


@case
def comprehensions(malloc):
    [malloc(P, told()) for _ in range(2)]
    {malloc(P, told()) for _ in range(2)}
    {malloc(P, told()): 1 for _ in range(2)}
    list(malloc(P, told()) for _ in range(2))
    [[malloc(P, told()) for _ in range(1)] for _ in range(2)]
    [
        malloc(P, told())
        for _ in range(2)
        if malloc(P, told()) == 0
    ]


@case
def decorated(malloc):
    def decorator(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    @decorator
    @decorator
    def function(count):
        return malloc(P, told()) + count

    function(1)

    @functools.lru_cache(maxsize=None)
    def cached(_):
        malloc(P, told())

    cached(1)
    functools.partial(function, 2)()


@case
def recursion(malloc):
    def down(depth):
        if depth > 1:
            return down(depth - 1)
        return malloc(P, told())

    for depth in (2, 100, 127, 128, 129, 500):
        down(depth)


@case
def recursion_through_c(malloc):
    def down(depth):
        if depth > 1:
            return sorted([depth - 1], key=down)
        return malloc(P, told())

    for depth in (2, 20, 60):
        down(depth)


@case
def matches(malloc):
    source = """
class Thing:
    __match_args__ = ("value",)

    @property
    def value(self):
        malloc(P, told())
        return 1


def function(thing):
    match thing:
        case {"a": 1}:
            pass
        case Thing(
            1
        ) if malloc(P, told()) == 0:
            malloc(P, told())


function(Thing())
"""
    exec(compile(source, "match.py", "exec"), {"malloc": malloc, "P": P, "told": told})
