#!/usr/bin/env bash
# Checks gpuprobe against real CUDA programs, with exact expectations.
#
#     scripts/gpu-check.sh GPUPROBE_BINARY [NAME]
#
# Needs root, an NVIDIA GPU, nvcc, and a python3 that has PyTorch. Installs and
# downloads nothing. With NAME only the checks whose name contains it are run.
# The last line is "N passed, N failed". The logs and reports go to a temporary
# directory, or to $GPU_CHECK_DIR and stay there.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# compile NAME LANGUAGE NVCC_OPTION...
compile() {
    local name=$1 language=$2
    shift 2
    "$nvcc" -x "$language" -std=c++17 -O1 -o "$work/$name" "$root/tests/gpu/leak.cu" "$@"
}

# The three take the compiler several seconds each; they do not need to queue.
compile_all() {
    local pids=() pid
    compile leak_shared cu -cudart shared -Xlinker "-rpath,$runtime_dir" &
    pids+=($!)
    compile leak_static cu -cudart static &
    pids+=($!)
    # As plain C++: what nvcc adds to a .cu file needs the runtime.
    compile leak_driver c++ -cudart none -DDRIVER_API -lcuda &
    pids+=($!)
    for pid in "${pids[@]}"; do
        wait "$pid" || die "nvcc could not compile tests/gpu/leak.cu"
    done
}

[[ $# -eq 1 || $# -eq 2 ]] || die "usage: scripts/gpu-check.sh GPUPROBE_BINARY [NAME]"
[[ -x $1 ]] || die "$1 is no program: build it with cargo build --release"
gpuprobe=$(readlink -f "$1")
[[ $EUID -eq 0 ]] || die "needs root: eBPF programs cannot be loaded without it"
nvcc=$(find_nvcc) || die "needs nvcc, on the PATH or in /usr/local/cuda/bin"
runtime_dir=$(find_cuda_libraries "$nvcc") || die "no libcudart.so beside $nvcc"
python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' ||
    die "needs a python3 whose PyTorch can use the GPU"

checker=
temporary=
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    # It ends the programs that it has started.
    if [[ -n $checker ]]; then
        kill "$checker" 2>/dev/null || true
        wait "$checker" 2>/dev/null || true
    fi
    [[ -z $temporary ]] || rm -rf "$temporary"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

if [[ -n ${GPU_CHECK_DIR:-} ]]; then
    mkdir -p "$GPU_CHECK_DIR"
    work=$(readlink -f "$GPU_CHECK_DIR")
else
    work=$(mktemp -d)
    temporary=$work
fi

nvidia-smi -L 2>/dev/null || true
uname -sr
"$gpuprobe" --version
compile_all

# In the background, so that a signal to this script is acted on at once.
PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 python3 "$root/scripts/gpu_check" \
    --programs "$work" --torch-program "$root/tests/gpu/torch_alloc.py" --directory "$work" \
    --only "${2:-}" "$gpuprobe" &
checker=$!
status=0
wait "$checker" || status=$?
checker=
exit "$status"
