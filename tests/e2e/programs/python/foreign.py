# Calls of Python from C, on threads, and in several interpreters.
import contextlib
import ctypes
import functools
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

from telling import HELD, P, POINTER, SIZE, STATE, case, told


@case
def callbacks(malloc):
    sorted([2, 1], key=lambda _: malloc(P, told()))
    list(map(lambda _: malloc(P, told()), [1]))
    list(filter(lambda _: malloc(P, told()), [1]))
    functools.reduce(lambda a, b: malloc(P, told()), [1, 2, 3])
    max([1, 2], key=lambda _: malloc(P, told()))
    iter(lambda: malloc(P, told()), 0).__next__
    next(iter(lambda: malloc(P, told()), 5))
    "".join(str(malloc(P, told())) for _ in range(2))
    eval("malloc(P, told())")
    exec("def f():\n\n    malloc(P, told())\nf()", {"malloc": malloc, "P": P, "told": told})

    class Target:
        pass

    target = Target()
    reference = weakref.ref(target, lambda _: malloc(P, told()))
    del target
    assert reference() is None

    def trace(frame, event, argument):
        if frame.f_code.co_name == "traced" and event == "line":
            malloc(P, told())
        return trace

    def traced():
        return 1

    sys.settrace(trace)
    traced()
    sys.settrace(None)


@case
def c_callbacks(malloc):
    """Called by C code without an interpreter, with the lock released around it and held."""
    for library in (ctypes.CDLL, ctypes.PyDLL):
        libc = library(None)
        numbers = (ctypes.c_int * 3)(3, 1, 2)
        callback_type = ctypes.CFUNCTYPE
        if library is ctypes.PyDLL:
            callback_type = ctypes.PYFUNCTYPE
        kind = callback_type(ctypes.c_int, POINTER, POINTER)

        def compare(a, b):
            malloc(P, told())
            return 0

        def again(a, b):
            libc.qsort(numbers, SIZE(2), SIZE(4), kind(compare))
            return 0

        libc.qsort(numbers, SIZE(2), SIZE(4), kind(compare))
        libc.qsort(numbers, SIZE(2), SIZE(4), kind(again))


@case
def threads(malloc):
    def work(depth):
        if depth:
            return work(depth - 1)
        for _ in range(5):
            malloc(P, told())

    class Worker(threading.Thread):
        def run(self):
            work(7)

    workers = [threading.Thread(target=work, args=[n]) for n in range(4)] + [Worker()]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(4)))
    timer = threading.Timer(0, work, [1])
    timer.start()
    timer.join()


INSIDE = """
import ctypes, json, os, sys
malloc = ctypes.{loader}({library!r}).cudaMalloc
malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
P = ctypes.byref(ctypes.c_void_p())

def told(size):
    frame, frames = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        frames.append((getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno))
        frame = frame.f_back
    truth = {{"size": size, "thread": {thread}, "case": "interpreters", "frames": frames}}
    os.write(1, json.dumps(truth).encode() + b"\\n")
    return size

def inner(): malloc(P, told({size}))
def outer():
    inner()

outer()
"""


def interpreter():
    """A function that runs a text in a subinterpreter, if there can be one."""
    with contextlib.suppress(ImportError):
        import _interpreters as module

        return functools.partial(module.exec, module.create("legacy"))
    with contextlib.suppress(ImportError):
        import _xxsubinterpreters as module

        return functools.partial(module.run_string, module.create(isolated=False))


@case
def interpreters(malloc):
    run = interpreter()
    STATE["size"] += 1
    loader = "PyDLL" if malloc is HELD else "CDLL"
    text = INSIDE.format(
        loader=loader, library=sys.argv[1], size=STATE["size"], thread=threading.get_native_id()
    )
    if run is not None:
        failed = run(text)
        assert not failed, failed
