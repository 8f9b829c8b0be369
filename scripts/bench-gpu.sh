#!/usr/bin/env bash
# What tracing costs on a real GPU: a launch, an allocation and a PyTorch step,
# untraced, under gpuprobe, under a minimal CUPTI collector, and under Nsight
# Systems and compute-sanitizer where these are installed; taken in turn,
# medians and ratios.
#
#     scripts/bench-gpu.sh [GPUPROBE_BINARY]
#
# Needs what scripts/gpu-check.sh needs. Without a binary it is built.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/bench-gpu.sh" "$@"

if [[ $# -eq 0 ]]; then
    cd "$root"
    ensure_build_packages
    ensure_cargo
    as_builder cargo build --locked --release
    set -- target/release/gpuprobe
fi
exec "$root/scripts/gpu-check.sh" "$1" "start and idle|overhead|cost of"
