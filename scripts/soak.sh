#!/usr/bin/env bash
# Long-run test of gpuprobe: 50,000 calls a second of processes that come and go, on the stand-in
# CUDA libraries. Its memory, file descriptors and BPF objects are sampled; at the end its counts
# are compared with the programs' own, and all of its objects must be gone.
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
run_on_standin scripts/soak/soak.py "$@"
