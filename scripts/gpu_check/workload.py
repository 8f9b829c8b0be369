"""The program of tests/standin/workload.c on a real GPU: its commands, and what its replies say
that it did. It is built by tests/standin/real.sh."""

import re

from children import Failed
from expect import Block, Expected

# By build: the layer that the program calls.
BUILDS = ("workload", "workload_static", "workload_ptsz", "workload_driver")

# The functions of `via=`, by the layer, and the names that a program for per-thread default streams
# calls them by.
RUNTIME = {
    "kernel": "cudaLaunchKernel",
    "nvcc": "cudaLaunchKernel",
    "ex": "cudaLaunchKernelExC",
    "coop": "cudaLaunchCooperativeKernel",
}
DRIVER = {"kernel": "cuLaunchKernel", "ex": "cuLaunchKernelEx", "coop": "cuLaunchCooperativeKernel"}
PER_THREAD = {"kernel": "ptsz", "ex": "ex-ptsz", "coop": "coop-ptsz"}

# Kernels that every build has, by their numbers: as they are called in reports.
ELEMENTWISE = "at::native::CUDAFunctor_add<float>, std::array<char*, (unsigned long)3>"
GEMM = (
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_"
    "warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
)
KERNELS = {
    "0": ("_Z6vecAddPKfS0_Pfi", "vecAdd(float const*, float const*, float*, int)"),
    "1": (
        "_ZN2at6native29vectorized_elementwise_kernelILi4E"
        "NS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
        f"void at::native::vectorized_elementwise_kernel<4, {ELEMENTWISE} >(int, {ELEMENTWISE})",
    ),
    "2": (GEMM, GEMM),
    "3": ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
}

# What a copy is reported as; a set of memory is a "set".
DIRECTIONS = {"d2h": "D2H", "d2d": "D2D", "h2h": "H2H", "peer": "D2D"}

# Names that later commands call by, and the word of the reply that says them.
LEARNED = {
    "alloc": (("block", 1), ("other", 2)),
    "pinned": (("host", 1),),
    "pool": (("pool", 1), ("pool_handle", 2)),
    "vreserve": (("reservation", 1), ("reserved", 2)),
    "vexport": (("fd", 1),),
    "gnew": (("graph", 1),),
    "gcapture": (("graph", 1),),
    "galloc": (("node", 1),),
    "ctx": (("ctx", 1),),
    "stream": (("stream", 1),),
    "endcapture": (("exec", 1),),
    "module": (("module", 1),),
    "ipcget": (("ipc", 1),),
}

FAILED = re.compile(r"^error|\bfailed=[1-9]|\berror=")


def numbers_of(reply):
    """The numbers of a reply.

    >>> numbers_of("ok live=2 bytes=8 seconds=0.5 handle=0x7 7")
    {'live': 2, 'bytes': 8}
    """
    return {name: int(number) for name, number in re.findall(r"(\w+)=(-?\d+)(?![\w.])", reply)}


def learned(command, reply):
    """What a reply says that later commands name.

    >>> learned("vreserve 8", "ok 0 0x700000000000")
    {'reservation': '0', 'reserved': '0x700000000000', 'second': '0x700000800000'}
    >>> learned("pool attr 0", "ok reserved=8"), learned("ctx pop", "ok")
    ({}, {})
    """
    words = reply.split()
    known = {
        name: words[place]
        for name, place in LEARNED.get(command.split()[0], ())
        if place < len(words) and words[place].isalnum()
    }
    if "reserved" in known:
        known["second"] = hex(int(known["reserved"], 16) + (8 << 20))
    return known


def direction_of(kind):
    """The direction of a copy of this kind.

    >>> direction_of("2d"), direction_of("3d-d2h"), direction_of("d2d")
    ('H2D', 'D2H', 'D2D')
    """
    return DIRECTIONS.get(kind.rpartition("-")[2], "H2D")


class Workload:
    """A workload that runs commands. A command with "!" before it is to fail, one with "?" may.

    Words in braces are numbers, addresses or handles of earlier replies: see LEARNED; {vmm} and
    {last} are the kslots of the last vcreate and of all, {kernel}, {ex} and {coop} ways to launch.
    """

    def __init__(self, child, build):
        self.child = child
        self.build = build
        self.replied = None
        self.functions = DRIVER if build == "workload_driver" else RUNTIME
        ways = PER_THREAD if build == "workload_ptsz" else {}
        self.names = {way: ways.get(way, way) for way in RUNTIME}
        twins = ("_ptds", "_ptsz") if ways else ("", "")
        self.names["sync"], self.names["async"] = twins
        self.kernels, self.moves = {}, {}
        self.tids, self.slots, self.device = {}, [], 0
        self.graphs = self.graph_launches = self.captured = 0

    @property
    def pid(self):
        """The process's own id; that of a tracer's command is in its first line."""
        return int(self.child.truth_line("ready ").split()[1])

    def last(self):
        return str(len(self.child.ask("kslots").split()) - 2)

    def fill(self, command):
        if "{last}" in command:
            self.names["last"] = self.last()
        return command.format(**self.names)

    def run(self, text):
        """Runs the commands of a text, by lines or ";". `replied`, if set, gets each command, its
        reply, and whether it went as it should; without it, one that did not is the end."""
        for command in filter(None, map(str.strip, re.split("[;\n]", text))):
            mark = command[0] if command[0] in "!?" else ""
            command = self.fill(command.lstrip("!? "))
            reply = self.child.ask(command)
            self.names |= learned(command, reply)
            self.note(command, reply)
            failed = bool(FAILED.search(reply)) and command != "status"
            expected = mark == "?" or failed == (mark == "!")
            if self.replied:
                self.replied(command, reply, expected)
            elif not expected:
                raise Failed(f"{self.build}: {command} -> {reply}")
        return reply

    def note(self, command, reply):
        """Counts launches, copies and blocks of the command."""
        words = command.split()
        thread = words.pop(0)[1:] if words[0].startswith("@") else None
        said = numbers_of(reply)
        if words[0] == "vcreate":
            self.names["vmm"] = self.last()
        elif words[0] == "launch":
            self.add_launches(words, said)
        elif words[0] == "launchstorm":
            for number in "012":
                self.add(KERNELS[number], "kernel", said[KERNELS[number][0]], 0)
        elif words[0] == "graphlaunch":
            self.graph_launches += said["graph_launches"]
        elif words[0] == "endcapture":
            self.graphs += 1
        elif words[0] in ("copy", "set") and "calls" in said:
            self.add_copies(words, said)
        elif words[0] == "thread":
            self.tids[words[1]] = int(reply.split()[1])
        elif words[0] == "setdevice":
            self.device = int(words[1])
        elif words[0] == "alloc":
            for address in re.findall("0x[0-9a-f]+", reply):
                self.slots.append((thread, int(address, 16), int(words[1]), self.device))
        elif words[0] == "free":
            self.slots[int(words[1])] = None

    def add_launches(self, words, said):
        options = dict(word.split("=") for word in words[2:] if "=" in word)
        way = options.get("via", self.names["kernel"])
        way = next((name for name, called in PER_THREAD.items() if called == way), way)
        shape = [
            tuple(map(int, options.get(name, size).split(",")))
            for name, size in (("grid", "80,1,1"), ("block", "128,1,1"))
        ]
        names = KERNELS.get(words[1], (words[1], words[1]))
        self.add(names, way, said["launches"], said["captured"], shape)

    def add(self, names, way, launches, captured, shape=((80, 1, 1), (128, 1, 1))):
        """A kernel has one row, like a kernel of a report: it is launched in one way and shape."""
        row = self.kernels.setdefault(names, {"launches": 0, "captured": 0})
        row["launches"] += launches
        row["captured"] += captured
        row |= {"mangled": names[0], "name": names[1], "function": self.functions[way]}
        row |= {"grid": shape[0], "block": shape[1]}

    def add_copies(self, words, said):
        if "captured" in said:
            self.captured += said["captured"]
            return
        is_set = words[0] == "set"
        size = int(words[1 if is_set else 2])
        direction = "set" if is_set else direction_of(words[1])
        way = "async" if any("Async" in word for word in words) else "sync"
        key = direction, way, size
        self.moves[key] = self.moves.get(key, 0) + said["calls"]

    def memory(self):
        """The counts and sums of memory, as the status command has them."""
        return numbers_of(self.run("status"))

    def account(self):
        """Where plain memory stands; for `expected`."""
        return self.memory(), list(self.slots)

    def expected(self, function, before=None, exited=False):
        """The report of the plain memory since `before`, allocated by that function. At most one
        command in a row frees a slot, and none shows more than 16 addresses."""
        status, slots = self.account()
        start, old = before or (dict.fromkeys(status, 0), [])
        allocs = status["allocs"] - start["allocs"]
        return Expected(
            calls={function: allocs} if allocs else {},
            free_calls=status["frees"] - start["frees"],
            failed_calls=status["failed"] - start["failed"],
            unknown_frees=sum(was is not None and now is None for was, now in zip(old, slots)),
            blocks={
                Block(self.pid, self.tids.get(thread, self.pid), thread or self.build, at, size, device, function)
                for thread, at, size, device in filter(None, slots[len(old) :])
            },
            exited={self.pid: exited},
        )

    def launches(self):
        """All launches so far, for compare_launches."""
        return {
            "pid": self.pid,
            "graphs": self.graphs if self.graph_launches else 0,
            "graph_launches": self.graph_launches,
            "kernels": [dict(row) for row in self.kernels.values()],
        }

    def copies(self):
        """All copies so far, for compare_copies."""
        names = ("direction", "call", "size")
        moves = [dict(zip(names, key), calls=calls) for key, calls in self.moves.items()]
        return {"pid": self.pid, "captured": self.captured, "moves": moves}

    def end(self, bench):
        self.child.tell("exit")
        bench.equal("exit status of the workload", 0, self.child.wait())


def start(bench, build, *options, prefix=(), env=None):
    """A workload that nothing traces yet."""
    return Workload(bench.start(*prefix, bench.program(build), *options, env=env), build)


def trace(bench, build, *options, **more):
    """(the tracer, the workload that it starts)."""
    tracer = bench.trace(*options, "--", bench.program(build), **more)
    return tracer, Workload(tracer, build)
