# Calls over several lines: which one it is, the interpreter is asked at the very place of the call.
import contextlib
import sys

from telling import P, case, frames_of, tell

SIZES = []
IS_TOLD = False


def asks(pointer, size):
    """Stands in for the allocation that is made at the same place after it."""
    SIZES.append(tell(frames_of(sys._getframe(1))))


def foretold():
    """The next size whose line `asks` has reported."""
    return SIZES.pop(0) if IS_TOLD else 0


def far():
    """Lines that are far from each other, backwards and forwards."""
    source = """
def far(function):
    x = [{gap}
        function(P, foretold()),{gap}
        1]
    return function({gap}
        P, foretold())
"""
    space = {"P": P, "foretold": foretold}
    exec(compile(source.format(gap="\n" * 150), "far.py", "exec"), space)
    return space["far"]


@case
def several_lines(malloc):
    def call(function):
        return function(
            P,
            foretold(),
        )

    def chain(function):
        return (
            [1]
            .copy()
            .__len__()
            .__add__(
                function(
                    P,

                    foretold()

                ) or 0
            )
        )

    def keywords(function):
        x = dict(
            a=1,
            b=function(P,
                       foretold()),
            c=[
                function(
                    P, foretold())
            ],
        )
        return x

    def condition(function):
        if (
            function(P, foretold())
            or function(
                P, foretold()
            )
        ):
            return 1

    def text(function):
        return f"""
            {1}
            { function(P, foretold()) }
            """

    def in_try(function):
        try:
            with contextlib.ExitStack() as stack, \
                    contextlib.suppress(
                        ValueError):
                raise KeyError
        except (OSError,
                KeyError):
            function(P,
                     foretold())
        finally:
            function(
                P, foretold())

    global IS_TOLD
    for function in (call, chain, keywords, condition, text, in_try, far()):
        for IS_TOLD in (False, True):
            function(malloc if IS_TOLD else asks)
        assert not SIZES
