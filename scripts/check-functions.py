#!/usr/bin/env python3
"""Compares the functions that the newest CUDA libraries export with those that are probed, before each release.

Each is a row of crates/cuda, as docs/functions.md lists them, or in scripts/not-probed.txt with the reason why not. The
libraries are downloaded one at a time, and deleted again: libcudart, cuBLAS and NCCL from the configured Python index,
libcuda from the non-free part of Debian's unstable, where apt's configuration reaches that. As drivers are older there
than CUDA, the functions that cuda.h declares are libcuda's, too. Needs pip and nm; of other packages, only those named.

    scripts/check-functions.py [PACKAGE...]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEELS = ["nvidia-cuda-runtime", "nvidia-nccl-cu13", "nvidia-cublas"]
DRIVER = "libcuda1"
# Of libraries with handles, what could make one or end it.
OF_HANDLES = re.compile(r"(?!\w*(AlgoInit|_internal))(cublas|nccl)\w*(Create|Init|Destroy|Split|Shrink|Grow|Abort|Alloc|Free)\w*")
STREAMS = re.compile(r"_pt[ds][sz]$")


def probed(chapter):
    """The symbols in the chapter's table.

    >>> sorted(probed("| x | `cuA_v2` (`_ptsz`, unversioned, `cuB`) | `c10::f` |"))
    ['cuA', 'cuA_v2', 'cuA_v2_ptsz', 'cuB']
    """
    found = set()
    for stem, variants in re.findall(r"`((?:cu|nccl)\w+)`(?: \(([^)]*)\))?", chapter):
        found.add(stem)
        for variant in filter(None, variants.split(", ")):
            name = variant.strip("`")
            base = re.sub(r"_v\d+$", "", stem)
            found.add(base if name == "unversioned" else name if name.startswith("cu") else stem + name)
    return found


def not_probed(text):
    """The names of the list."""
    return {name for line in text.splitlines() if not line.startswith("#") for name in line.split()}


def declared(header):
    """The symbols that cuda.h declares, of which a macro may name another.

    >>> sorted(declared("#define cuA cuA_v2\\n#define cuB __CUDA_API_PTSZ(cuB)\\n/* cuC */ CUresult CUDAAPI cuA(int);"))
    ['cuA', 'cuA_v2']
    """
    names = dict(re.findall(r"#define (cu\w+)\s+(?:__CUDA_API_PT[DS][SZ]\()?(cu\w+)", header))
    functions = set(re.findall(r"\bCUDAAPI\s+(cu\w+)\s*\(", header))
    return functions | {names[name] for name in functions if name in names}


def is_known(symbol, rows, others):
    """Whether a function is probed, or said not to be.

    >>> is_known("cuA_v2_ptsz", {"cuA_v2"}, set()), is_known("cudaA", {"cuA_v2"}, set())
    (False, True)
    >>> [is_known(name, {"cuA"}, {"A", "B"}) for name in ["cuA_v2", "cuB_v2", "cudaB_ptsz"]]
    [False, True, True]
    """
    plain = STREAMS.sub("", symbol)
    base = re.sub(r"_v\d+$", "", plain)
    bare = re.sub(r"^cu(da)?", "", base)
    versions = {row for row in rows if re.fullmatch(rf"cu{re.escape(bare)}(_v\d+)?", row)}
    if symbol in rows or plain in others or bare in others and not versions:
        return True
    # The runtime calls the driver's function, which is probed.
    return symbol.startswith("cuda") and bool(versions)


def run(*command, **more):
    """The output of a command."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def exported(library):
    """The functions that a library exports, without versions."""
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if re.search(r" [TWi] ", line)}


def wheel(package, folder):
    """Library and functions of the newest wheel of a package."""
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", folder, package)
    (path,) = pathlib.Path(folder).glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if re.search(r"/lib(cudart|cublas|cublasLt|nccl)\.so[.\d]*$", name):
                yield f"{path.name.split('-py3')[0]} {name.rsplit('/')[-1]}", exported(archive.extract(name, folder))
            elif name.endswith("/cuda.h"):
                yield f"{path.name.split('-py3')[0]} cuda.h", declared(archive.read(name).decode())


def driver(folder):
    """The same of Debian's newest driver. Apt is told of other suites than the machine's by lists of its own."""
    parts, lists = pathlib.Path(folder, "parts"), pathlib.Path(folder, "lists")
    parts.mkdir()
    (lists / "partial").mkdir(parents=True)
    for source in pathlib.Path("/etc/apt/sources.list.d").glob("debian*.sources"):
        text = re.sub(r"(?m)^Components:.*", "Components: non-free", source.read_text())
        parts.joinpath(source.name).write_text(re.sub(r"(?m)^Suites:.*", "Suites: sid", text))
    options = {"Etc::SourceParts": parts, "Etc::SourceList": "/dev/null", "State::Lists": lists,
               "Cache::pkgcache": "", "Cache::srcpkgcache": ""}
    apt = ["apt-get", "-qq", *(f"-oDir::{name}={value}" for name, value in options.items())]
    # One of the sources may have no such suite.
    subprocess.run([*apt, "update"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    run(*apt, "download", DRIVER, cwd=folder, stderr=subprocess.DEVNULL)
    (package,) = pathlib.Path(folder).glob("*.deb")
    run("dpkg-deb", "-x", package, folder)
    for library in pathlib.Path(folder).rglob("libcuda.so.*.*"):
        yield package.name.split("_amd64")[0], exported(library)


def main():
    packages = sys.argv[1:] or [*WHEELS, DRIVER]
    rows = probed(ROOT.joinpath("docs/functions.md").read_text().split("<!-- functions -->")[1])
    others = not_probed(ROOT.joinpath("scripts/not-probed.txt").read_text())
    missing, seen = [], set()
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # apt's own user reads it
            try:
                for name, symbols in driver(folder) if package == DRIVER else wheel(package, folder):
                    functions = {s for s in symbols if re.match(r"_*cu(da)?[A-Z]", s) or OF_HANDLES.fullmatch(s)}
                    unknown = sorted(s for s in functions if not is_known(s, rows, others))
                    print(f"{name}: {len(functions)} functions, {len(unknown)} of them unknown")
                    missing += unknown
                    seen |= functions
            except (subprocess.CalledProcessError, ValueError) as error:
                print(f"{package}: cannot be had: {error}")
    for symbol in sorted(set(missing)):
        print(f"  {symbol}: neither probed nor in scripts/not-probed.txt")
    return 1 if missing or not seen else 0


if __name__ == "__main__":
    sys.exit(main() if shutil.which("nm") else "nm is missing: install binutils")
