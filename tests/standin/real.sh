#!/usr/bin/env bash
# Builds the workload programs for a real CUDA, with gcc and nothing else.
#
#     tests/standin/real.sh OUT RUNTIME_DIRECTORY [LIBCUDA]
#
# OUT gets workload, workload_ptsz, workload_static and workload_driver: the programs of the
# Makefile, with PTX for modules' images. RUNTIME_DIRECTORY has libcudart.so and
# libcudart_static.a; LIBCUDA is libcuda.so.1, as the loader finds it if it is not given.
#
# The workload is written against one CUDA's ABI. A function that this CUDA lacks, or has with
# other arguments, becomes one that returns CUDA_ERROR_NOT_SUPPORTED; each is listed.
set -euo pipefail

[[ $# -eq 2 || $# -eq 3 ]] || { echo "usage: ${0##*/} OUT RUNTIME_DIRECTORY [LIBCUDA]" >&2; exit 2; }
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$1 runtime_dir=$2
libcuda=${3:-$(PATH=$PATH:/sbin ldconfig -p | awk '$1 == "libcuda.so.1" && /x86-64|AArch64/ { print $NF }' | head -n 1)}
[[ -e $libcuda ]] || { echo "no libcuda.so.1" >&2; exit 1; }
runtime=$(readlink -f "$(printf '%s\n' "$runtime_dir"/libcudart.so* | head -n 1)")
cc=${CC:-gcc}
flags=(-std=gnu11 -g -O2 -fPIC -pthread -fno-omit-frame-pointer -fno-optimize-sibling-calls -Wall -Wextra)
objects=$out/real
mkdir -p "$objects"

# CUDA 13 took an argument away from it.
changed=()
case $(basename "$runtime") in
libcudart.so.1[0-2].*) ;;
*) changed=(cudaMemcpyBatchAsync cudaMemcpyBatchAsync_ptsz) ;;
esac

compile_all() {
    local source name pids=() pid
    for source in "$source_dir"/workload*.c; do
        name=$(basename "$source" .c)
        "$cc" "${flags[@]}" -c -o "$objects/$name.o" "$source" &
        pids+=($!)
    done
    "$cc" "${flags[@]}" -DPER_THREAD_STREAMS -c -o "$objects/workload_runtime.ptsz.o" \
        "$source_dir/workload_runtime.c"
    for pid in "${pids[@]}"; do
        wait "$pid"
    done
}

# cuda_symbols NM_OPTION FILE...: the names of CUDA functions, without versions.
cuda_symbols() {
    nm "$@" 2>/dev/null | awk 'NF > 1 { sub(/@.*/, "", $NF); print $NF }' |
        grep -E '^(cu[A-Z]|cuda[A-Z]|__cuda[A-Z])' | sort -u
}

# link NAME LIBRARY LINK_OPTION... -- OBJECT...
link() {
    local name=$1 library=$2 options=() absent symbol
    shift 2
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    local listing=(-D --defined-only "$library")
    [[ $library == *.a ]] && listing=(--defined-only "$library")
    mapfile -t absent < <(
        comm -23 <(cuda_symbols -u "$@") <(cuda_symbols "${listing[@]}")
        printf '%s\n' "${changed[@]}" | comm -12 - <(cuda_symbols -u "$@")
    )
    for symbol in "${absent[@]}"; do
        printf 'int %s(void)\n{\n    return 801;\n}\n' "$symbol"
    done >"$objects/$name.absent.c"
    [[ ${#absent[@]} -eq 0 ]] || printf 'figure %s: not in this CUDA: %s\n' "$name" "${absent[*]}"
    "$cc" -pthread -Wl,--allow-multiple-definition -o "$out/$name" "$@" \
        -x c "$objects/$name.absent.c" -x none "${options[@]}" -ldl
}

common() {
    local object
    for object in "$objects"/workload*.o; do
        case $(basename "$object") in
        workload_runtime* | workload_driver* | workload_image.o) ;;
        *) printf '%s\n' "$object" ;;
        esac
    done
}

compile_all
mapfile -t common < <(common)
mapfile -t driver < <(printf '%s\n' "$objects"/workload_driver*.o)

shared=("$runtime" "-Wl,--enable-new-dtags,-rpath,$(dirname "$runtime")")
link workload "$runtime" "${shared[@]}" -- "${common[@]}" "$objects/workload_runtime.o"
link workload_ptsz "$runtime" "${shared[@]}" -- "${common[@]}" "$objects/workload_runtime.ptsz.o"
link workload_static "$runtime_dir/libcudart_static.a" "$runtime_dir/libcudart_static.a" \
    -lrt -lstdc++ -- "${common[@]}" "$objects/workload_runtime.o"
link workload_driver "$libcuda" "$libcuda" -- "${common[@]}" "${driver[@]}"
