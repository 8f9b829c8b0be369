"""How a stress program allocates: each allocation is one call of CUDA.

Frameworks keep what they free for themselves. Here they must not: PyTorch is
told so, and of CuPy and CUDA's runtime the plain functions are used.
"""

import ctypes
import importlib.util
import os

COUNTED = """\
What is counted: each allocation is one call of cudaMalloc and each free one call
of cudaFree. PyTorch runs with PYTORCH_NO_CUDA_MEMORY_CACHING=1; of CuPy the plain
cupy.cuda.runtime.malloc is used, which a CuPy with a runtime of its own inside
makes a cuMemAlloc_v2 to a tracer; `runtime` calls libcudart itself. What is live
at the end is not freed: the process ends with it. A MB is 2^20 bytes."""


class Torch:
    """Tensors of bytes. Without its cache a tensor's end is a cudaFree."""

    name, function = "torch", "cudaMalloc"

    def __init__(self, device):
        # Read at the first allocation; another allocator would ignore it.
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
            os.environ.pop(name, None)
        import torch

        self.torch = torch
        self.device = torch.device("cuda", device)
        self.enter_thread()
        self.synchronize()

    def enter_thread(self):
        self.torch.cuda.set_device(self.device)

    def allocate(self, size_bytes):
        try:
            return self.torch.empty(size_bytes, dtype=self.torch.uint8, device=self.device)
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            return None

    def free(self, block):
        block.handle = None  # the only reference

    def compute(self, block):
        """In place: nothing else is allocated."""
        block.handle.add_(1)

    def synchronize(self):
        self.torch.cuda.synchronize(self.device)

    def check(self):
        """That no cache was at work."""
        if self.torch.cuda.memory_reserved(self.device):
            raise SystemExit("PyTorch has kept memory in its cache: the counts are not CUDA's")


class Cupy:
    """Pointers of CUDA's runtime through CuPy, without its pool."""

    name, function = "cupy", "cudaMalloc"

    def __init__(self, device):
        import cupy

        self.cupy, self.device = cupy, device
        self.runtime = cupy.cuda.runtime
        self.enter_thread()
        self.runtime.free(0)  # creates the context and frees nothing

    def enter_thread(self):
        self.cupy.cuda.Device(self.device).use()

    def allocate(self, size_bytes):
        try:
            return self.runtime.malloc(size_bytes)
        except self.runtime.CUDARuntimeError as error:
            if error.status != OUT_OF_MEMORY:
                raise
            return None

    def free(self, block):
        self.runtime.free(block.handle)

    def compute(self, block):
        """A memory set: operations on arrays might allocate besides."""
        self.runtime.memset(block.handle, 1, block.size_bytes)

    def synchronize(self):
        self.runtime.deviceSynchronize()

    def check(self):
        """There is no cache between."""


class Runtime:
    """CUDA's runtime by itself, which needs no framework."""

    name, function = "runtime", "cudaMalloc"

    def __init__(self, device, library):
        self.library, self.device = ctypes.CDLL(library), device
        malloc, free, memset = (
            getattr(self.library, name) for name in ("cudaMalloc", "cudaFree", "cudaMemset")
        )
        malloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
        free.argtypes = [ctypes.c_void_p]
        memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        self.enter_thread()
        self.call("cudaFree", None)

    def call(self, function, *arguments, may_be=0):
        """The error, which must be `may_be` or none."""
        error = getattr(self.library, function)(*arguments)
        if error not in (0, may_be):
            raise SystemExit(f"{function} failed with error {error}")
        return error

    def enter_thread(self):
        self.call("cudaSetDevice", self.device)

    def allocate(self, size_bytes):
        address = ctypes.c_void_p()
        error = self.call("cudaMalloc", ctypes.byref(address), size_bytes, may_be=OUT_OF_MEMORY)
        return None if error else address.value

    def free(self, block):
        self.call("cudaFree", block.handle)

    def compute(self, block):
        self.call("cudaMemset", block.handle, 1, block.size_bytes)

    def synchronize(self):
        self.call("cudaDeviceSynchronize")

    def check(self):
        """There is no cache between."""


OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
CHOICES = ("auto", "torch", "cupy", "runtime")


def open_backend(options):
    """The backend of the options, with a context on their device."""
    name = options.backend
    if name == "auto":
        there = (n for n in ("torch", "cupy") if importlib.util.find_spec(n))
        name = next(there, None)
        if not name:
            raise SystemExit(
                "neither PyTorch nor CuPy is installed: pip install torch, or"
                " pip install cupy-cuda12x, or use --backend runtime"
            )
    if name == "runtime":
        return Runtime(options.device, options.libcudart)
    try:
        return {"torch": Torch, "cupy": Cupy}[name](options.device)
    except ImportError as error:
        raise SystemExit(f"--backend {name}: {error}") from error


class Named:
    """The backend of a process that leaves CUDA to its children."""

    function = "cudaMalloc"

    def __init__(self, name):
        self.name = name
