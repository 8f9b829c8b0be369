"""Expected call stacks, from the output of compute-sanitizer and from reports."""

import re

FRAME = re.compile(
    r"Host Frame:\s*(?P<name>.*?)\s*\[(?P<place>0x[0-9a-f]+)\](?: in (?P<module>\S+))?"
)
LEAK = re.compile(r"Leaked ([\d,]+) bytes")


def sanitizer_leaks(output):
    """[(bytes, [(function, module, place) of each frame, innermost first])] of each leak.

    >>> sanitizer_leaks('''========= Leaked 8,388,608 bytes at 0x7f
    ... =========     Saved host backtrace up to driver entry point at allocation time
    ... =========         Host Frame: cuMemAlloc_v2 [0x1] in libcuda.so.1
    ... =========         Host Frame: main in a.cu:35 [0xbd6a] in a.out
    ... =========
    ... ========= LEAK SUMMARY: 8388608 bytes leaked in 1 allocations''')
    [(8388608, [('cuMemAlloc_v2', 'libcuda.so.1', '0x1'), ('main', 'a.out', '0xbd6a')])]
    """
    leaks = []
    for line in output.splitlines():
        leak, frame = LEAK.search(line), FRAME.search(line)
        if leak:
            leaks.append((int(leak[1].replace(",", "")), []))
        elif frame and leaks:
            name = re.sub(r"\s+in \S+:\d+$", "", frame["name"])
            module = (frame["module"] or "").rpartition("/")[2]
            leaks[-1][1].append((name, module, frame["place"]))
    return leaks


# Modules bring their managed variables with them, which compute-sanitizer counts
# as leaked, once for each of these.
LOADS = ("cuDevicePrimaryCtxRetain", "cuLibraryLoad", "cuModuleLoad")


def leaked_bytes(output):
    """The sum of what was leaked by calls that allocate; None if it does not say.

    >>> leaked_bytes("=== Leaked 1,024 bytes at 0x7f\\n=== Leaked 8 bytes at 0x1\\n=== Host Frame: cuLibraryLoadData [0x1] in x")
    1024
    >>> leaked_bytes("========= LEAK SUMMARY: 0 bytes leaked in 0 allocations"), leaked_bytes("")
    (0, None)
    """
    leaks = sanitizer_leaks(output)
    leaked = sum(size for size, frames in leaks if not (frames and frames[0][0].startswith(LOADS)))
    return leaked if leaks or "LEAK SUMMARY" in output else None


def plain(name):
    """The name without parts that tools write differently: parameters, templates, return types.

    >>> plain("cudaError cudaMalloc<float>(float**, unsigned long)"), plain("main")
    ('cudaMalloc', 'main')
    """
    name = re.sub(r"<[^<>]*>", "", name.partition("(")[0])
    return name.split()[-1] if name.split() else ""


def of_program(frames, program):
    """The functions of the program's own file, innermost first, to main.

    >>> of_program([("f", "libx"), ("g", "p"), ("main", "p"), ("_start", "p")], "p")
    ['g', 'main']
    """
    names = [plain(name) for name, module, *_ in frames if module == program and name]
    return names[: names.index("main") + 1] if "main" in names else names


def frames_of(site):
    return [
        (frame["function"], (frame["module"] or "").rpartition("/")[2])
        for frame in site["stack"]
        if not frame["inlined"]
    ]


def holes(site):
    """The unknown parts of a stack: frames in no file, or an end in the middle.

    >>> frame = lambda module: {"function": "f", "module": module, "inlined": False}
    >>> holes({"complete": True, "stack": [frame("/a.so"), frame("[unknown]")]})
    ['frame 1 is in no file']
    >>> holes({"complete": False, "stack": [frame("/a.so")]})
    ['it ends in /a.so']
    """
    found = [
        f"frame {index} is in no file"
        for index, frame in enumerate(site["stack"])
        if (frame["module"] or "").startswith("[unknown")
    ]
    if not site["complete"]:
        found.append(f"it ends in {site['stack'][-1]['module'] if site['stack'] else 'nothing'}")
    return found


def order_of(site, wanted):
    """Where each of the wanted modules or functions first is, from the inside; None if not.

    >>> frame = lambda f, m: {"function": f, "module": m, "inlined": False}
    >>> order_of({"stack": [frame("a", "/x/liba.so.1"), frame("main", "/p")]}, ["liba", "main"])
    [0, 1]
    """
    places = []
    for word in wanted:
        hits = [
            index
            for index, frame in enumerate(site["stack"])
            if frame["function"].startswith(word)
            or (frame["module"] or "").rpartition("/")[2].startswith(word)
        ]
        places.append(hits[0] if hits else None)
    return places
