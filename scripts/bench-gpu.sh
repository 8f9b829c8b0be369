#!/usr/bin/env bash
# What tracing costs on a real GPU: a launch, an allocation and a PyTorch step,
# untraced, under gpuprobe, under a minimal CUPTI collector, and under Nsight
# Systems and compute-sanitizer where these are installed; taken in turn,
# medians and ratios.
#
#     scripts/bench-gpu.sh [GPUPROBE_BINARY [FLOOR_BINARY]]
#
# Has the requirements of scripts/gpu-check.sh. Without arguments the binaries are built;
# FLOOR_BINARY is the benchmark `overhead`, which attaches the empty programs that the rest is compared
# with.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/bench-gpu.sh" "$@"

if [[ $# -eq 0 ]]; then
    cd "$root"
    ensure_build_packages
    ensure_cargo
    as_builder cargo build --locked --release
    floor=$(as_builder cargo bench --locked --package gpuprobe-benches --bench overhead --no-run 2>&1 |
        sed -nE 's/.*Executable .*\((.*)\)$/\1/p')
    [[ -x $floor ]] || die "cargo does not say where the benchmark 'overhead' is"
    set -- target/release/gpuprobe "$floor"
fi
if [[ -n ${2:-} ]]; then
    GPU_CHECK_FLOOR=$(readlink -f "$2")
    export GPU_CHECK_FLOOR
fi
exec "$root/scripts/gpu-check.sh" "$1" "start and idle|overhead|cost of"
