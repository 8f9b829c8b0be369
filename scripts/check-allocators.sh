#!/usr/bin/env bash
# Checks that gpuprobe finds the functions of frameworks' allocators in released wheels, by `gpuprobe doctor`: the last
# five releases of each, downloaded one at a time and deleted. Before a release, and where a row of
# crates/cuda/src/frameworks.rs changes.
#
#     scripts/check-allocators.sh [GPUPROBE]
#
# Prints a line for each; the exit status is 1 if the newest one has not all of its functions. Needs root, or sudo, pip and
# unzip. The files are mapped by a program, not run.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/check-allocators.sh" "$@"
gpuprobe=$(realpath "${1:-$root/target/release/gpuprobe}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ensure_packages python3 python3-pip unzip

# Maps the file, and runs gpuprobe on itself.
mapped="import mmap, os, subprocess, sys
with open(sys.argv[2], 'rb') as file:
    size = min(os.path.getsize(sys.argv[2]), 4096)
    code = mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
sys.exit(subprocess.run([sys.argv[1], 'doctor', '--pid', str(os.getpid())]).returncode)"

failed=0
# package, beginning of the file's path in some folder, name in the answer
while read -r package member name; do
    newest=1
    for version in $(python3 -m pip index versions "$package" 2>/dev/null |
        sed -n 's/^Available versions: //p' | tr -d ' ' | tr , '\n' | head -n 5); do
        python3 -m pip download --quiet --no-deps --dest "$folder" "$package==$version"
        unzip -q -o "$folder"/*.whl "*$member*" -d "$folder"
        file=$(find "$folder" -path "*/$member*" -print -quit)
        said=$(python3 -c "$mapped" "$gpuprobe" "$file" 2>&1 | grep -E " $name +" | head -n 1) || true
        printf '%s %s: %s\n' "$package" "$version" "${said:-nothing is said}"
        [[ $newest -eq 0 || $said =~ has\ ([0-9]+)\ of\ the\ ([0-9]+) && ${BASH_REMATCH[1]} -eq ${BASH_REMATCH[2]} ]] ||
            failed=1
        newest=0
        rm -rf "${folder:?}"/*
    done
done <<'END'
jax-cuda12-pjrt xla_cuda_plugin.so XLA
jax-cuda13-pjrt xla_cuda_plugin.so XLA
librmm-cu12 librmm.so RMM
cupy-cuda12x cupy/cuda/memory.cpython- CuPy
cupy-cuda13x cupy/cuda/memory.cpython- CuPy
onnxruntime-gpu onnxruntime_pybind11_state. ONNX Runtime
onnxruntime-gpu libonnxruntime.so ONNX Runtime
END
exit "$failed"
