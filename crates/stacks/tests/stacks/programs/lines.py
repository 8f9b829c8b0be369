# Prints line tables with the lines that CPython decodes from them: a line for each code object of the
# sources below and of some modules of the standard library, with
#
#   co_firstlineno, the table in hexadecimal, the line of each instruction ("-": none)
#
# The first line is the version.
import ctypes
import importlib.util
import sys
import types

SOURCES = [
    # Calls over several lines, backwards too.
    """
def outer(a, b,
          *c):

    x = a(
        b,

        c(1,
          2),
    ).d(
        e,
        f=lambda y: (
            y
            + 1
        ),
    )
    return (x,
            [i
             for i in
             a
             if i],
            {
                k: v
                for k, v in c
            })
""",
    # Decorators, classes, properties.
    """
@first(
    1,
)
@second
class Thing(
    Base,
    metaclass=Meta,
):
    a: int = 1

    @property
    @third(
        2)
    def name(self):
        "a text"

        return self.a if self else \\
            self.b

    async def work(self):
        async with self.a as x, \\
                self.b as y:
            async for i in x:
                yield await y(
                    i)
            else:
                await z
""",
    # Everything that jumps.
    """
def jumps(a):
    try:
        with open(a) as f, \\
             open(f) as g:
            for i in f:
                if i:
                    continue
                while g:
                    break
                else:
                    raise ValueError(
                        i
                    ) from g
    except (OSError,
            ValueError) as e:
        del e
        raise
    except:
        pass
    else:
        assert a, (
            a)
    finally:
        try:
            a()
        finally:
            b = 1
    return (a and
            b or
            c)
""",
    "pass",
    "",
    "\n\n\nx = 1\n\n\n",
    "a = lambda: (yield)\nb = [lambda: c for d in e]; f = 1",
    "x = [" + ", ".join(str(i) + "+a" for i in range(2000)) + "]",
    "def f():\n" + "    a = g(\n" + "\n" * 126 + "b,\n" + "\n" * 127 + "c,\n" + "\n" * 128 + "d,\n"
    + "\n" * 5000 + "e,\n)\n    return a\n",
    "a(\n" + "\n" * 300 + "b(\n" + "\n" * 200 + "c,\n" * 70 + "))\n",
    "def f(x):\n" + "".join("    x(%d)\n" % i + "\n" * (i % 300) for i in range(700)),
    "\n" * 100000 + "def f(x):\n    return x(\n" + "\n" * 70000 + "x)\n",
    "".join("if a%d:\n    b = (c(d),\n         e)\n" % i for i in range(400)),
    """
def match(a):
    match a:
        case 1 | 2:
            return a
        case {
            "x": x,
            **rest,
        } if x(
            rest,
        ):
            return rest
        case [Thing(name=b), *_]:
            return b

        case _:
            pass
""",
]
if sys.version_info >= (3, 11):
    SOURCES.append("""
def groups(a):
    try:
        a(
        )
    except* ValueError as e:
        b(e)
    except* (OSError,
             KeyError):
        c()
""")
if sys.version_info >= (3, 12):
    SOURCES.append("""
type Pair[A] = tuple[
    A, A]


def generic[B: (int,
                str)](b: B) -> B:
    return f"{
        b(
        )}"
""")
MODULES = """
argparse ast asyncio.tasks collections contextlib dataclasses enum functools heapq inspect logging pathlib
pdb re shutil subprocess threading traceback typing unittest.mock
""".split()


def line_at(code, at):
    """What frames say: f_lineno is made by this function."""
    line = ADDR2LINE(code, at)
    return None if line < 0 else line


ADDR2LINE = ctypes.pythonapi.PyCode_Addr2Line
ADDR2LINE.argtypes = [ctypes.py_object, ctypes.c_int]


def lines_of(code):
    """The line of each instruction."""
    size = len(code.co_code)
    lines = [line for start, end, line in code.co_lines() for _ in range(start, end, 2)]
    # Each call begins at the first line: of some is enough.
    assert len(lines) == size // 2, code
    assert all(line_at(code, at) == lines[at // 2] for at in range(0, size, 2 * 11)), code
    return lines


def show(code):
    lines = ["-" if line is None else str(line) for line in lines_of(code)]
    print(code.co_firstlineno, code.co_linetable.hex() or "-", *lines)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            show(constant)


print(*sys.version_info[:2])
for source in SOURCES:
    show(compile(source, "<source>", "exec", dont_inherit=True))
    show(compile(source, "<source>", "exec", dont_inherit=True, optimize=2))
for name in MODULES:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
        with open(spec.origin, "rb") as file:
            show(compile(file.read(), name, "exec", dont_inherit=True))
