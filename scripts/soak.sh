#!/usr/bin/env bash
# Whether gpuprobe stays as it began when it runs for long: 50,000 calls a second
# of processes that come and go, on the stand-in CUDA libraries. Its memory, its
# descriptors and its BPF objects are sampled; at the end its counts are compared
# with what the programs say that they did, and nothing of it may be left.
#
#     scripts/soak.sh [--minutes N] [OPTION...]
#
# An hour, unless --minutes says otherwise. OPTION: of scripts/soak/soak.py. Prints
# tables in Markdown and, as the last line, "N passed, N failed". Needs root, or sudo.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/soak.sh" "$@"
cd "$root"

soak=
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    # It ends the programs that it has started.
    if [[ -n $soak ]]; then
        kill "$soak" 2>/dev/null || true
        wait "$soak" 2>/dev/null || true
    fi
    return_target
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

ensure_build_packages
ensure_packages python3
ensure_cargo
as_builder cargo build --locked --release
as_builder make -s -C tests/standin "OUT=$root/target/standin"
python3 -B scripts/soak/soak.py "$@" &
soak=$!
status=0
wait "$soak" || status=$?
soak=
exit "$status"
