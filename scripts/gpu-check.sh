#!/usr/bin/env bash
# Checks gpuprobe against real CUDA programs, with exact expectations.
#
#     scripts/gpu-check.sh GPUPROBE_BINARY [NAME]
#
# Needs root, an NVIDIA GPU, nvcc, gcc, and a python3 that has PyTorch. Installs and downloads nothing.
# The checks "alone, ..." run without gpuprobe: they show which commands of the workload a CUDA takes.
# Checks with JAX, CuPy and CUPTI are skipped, with a line, where these are missing. With NAME only
# the checks whose name contains it are run.
# The last line is "N passed, N failed". The logs and reports go to a temporary
# directory, or to $GPU_CHECK_DIR and stay there. $GPU_CHECK_FLOOR is the benchmark `overhead`, which
# attaches empty programs to compare with (scripts/bench-gpu.sh builds it); $GPU_CHECK_BEFORE is an earlier
# gpuprobe, whose cost is measured in turn with this one's.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

compilers=() # what runs in the background

# compile NAME SOURCE NVCC_OPTION...: into $work, in the background. Each takes
# several seconds; they do not need to queue.
compile() {
    local name=$1 source=$2
    shift 2
    "$nvcc" -std=c++17 -O1 -o "$work/$name" "$root/tests/gpu/$source" "$@" &
    compilers+=($!)
}

# find_cupti: the directory of cupti.h and the libcupti.so that belongs to it, of the toolkit or
# else of PyTorch's wheels.
find_cupti() {
    local toolkit base library
    toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    while read -r base; do
        for library in "$base"/lib64/libcupti.so* "$base"/lib/libcupti.so*; do
            if [[ -e $base/include/cupti.h && -e $library ]]; then
                printf '%s\n%s\n' "$base/include" "$library"
                return
            fi
        done
    done < <(
        printf '%s\n' "$toolkit"/extras/CUPTI "$toolkit"/targets/* "$toolkit"
        python3 -c 'import glob, nvidia; [print(d) for p in nvidia.__path__ for d in glob.glob(p + "/*")]' \
            2>/dev/null
    )
    return 1
}

# Without CUPTI, checks that need it say so.
compile_cupti() {
    local found
    mapfile -t found < <(find_cupti)
    if [[ ${#found[@]} -ne 2 ]]; then
        printf 'figure CUPTI: no cupti.h: nothing is compared with it\n'
        return
    fi
    "${CC:-gcc}" -std=c11 -O2 -shared -fPIC -I"${found[0]}" -I"$(dirname "$runtime_dir")/include" \
        -o "$work/libcupti_minimal.so" "$root/tests/gpu/cupti_minimal.c" \
        "${found[1]}" "-Wl,-rpath,$(dirname "${found[1]}")" ||
        printf 'figure CUPTI: cupti_minimal.c could not be compiled: nothing is compared with it\n'
}

compile_all() {
    local pid name
    local shared=(-arch=native -g -cudart shared -Xlinker "-rpath,$runtime_dir")
    compile allocations_shared allocations.cu "${shared[@]}"
    compile allocations_static allocations.cu -arch=native -g -cudart static
    compile allocations_ptsz allocations.cu "${shared[@]}" -default-stream per-thread
    compile objects objects.cu -arch=native -g -cudart static -lcuda -lcublas -lcufft -Xlinker "-rpath,$runtime_dir"
    compile_cupti
    "$root/tests/standin/real.sh" "$work" "$runtime_dir" &
    compilers+=($!)
    for pid in "${compilers[@]}"; do
        wait "$pid" || die "not all programs of tests/gpu and tests/standin could be compiled"
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
    # Some of these files are run by other users.
    chmod 755 "$work"
fi

nvidia-smi -L 2>/dev/null || true
uname -sr
sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo
"$gpuprobe" --version
compile_all

# In the background, so that a signal to this script is acted on at once.
PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 python3 "$root/scripts/gpu_check" \
    --programs "$work" --sources "$root/tests/gpu" --directory "$work" \
    --only "${2:-}" "$gpuprobe" &
checker=$!
status=0
wait "$checker" || status=$?
checker=
exit "$status"
