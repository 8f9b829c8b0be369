#!/usr/bin/env bash
# Overhead of tracing per call, on the stand-in CUDA libraries: untraced, an empty BPF program on
# the same functions (the floor), gpuprobe in each of its modes, and an equivalent bpftrace script,
# if bpftrace can be installed. All alternate in one run; the ratios are the result.
#
#     scripts/bench-overhead.sh [--quick] [--json FILE] [NAME...]
#
# NAME: pairs, layer, bystanders, stacks, launches, copies, load or memory; all of them otherwise.
# Prints a table; --json keeps the figures. Needs root, or sudo.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/bench-overhead.sh" "$@"
cd "$root"

json=
options=()
while [[ $# -gt 0 ]]; do
    case $1 in
    -h | --help)
        sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --json)
        json=${2:?--json needs a file}
        shift
        ;;
    *) options+=("$1") ;;
    esac
    shift
done

# shellcheck disable=SC2317 # called by the trap
cleanup() {
    return_target
}
trap cleanup EXIT

ensure_build_packages
ensure_cargo
(ensure_packages bpftrace) || say "no bpftrace: it is left out"

lines=$(mktemp)
as_builder cargo build --locked --release
as_builder cargo bench --locked --no-run --package gpuprobe-benches --bench overhead
cargo bench --locked --package gpuprobe-benches --bench overhead -- "${options[@]}" | tee "$lines"
if [[ -n $json ]]; then
    tail -n 1 "$lines" >"$json"
    say "the figures are in $json"
fi
rm -f "$lines"
