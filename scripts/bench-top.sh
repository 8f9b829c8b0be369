#!/usr/bin/env bash
# gpuprobe top with 100 processes and 10,000 call sites: CPU time of each screen beside --memleak.
#
#     scripts/bench-top.sh [OPTION...]
#
# OPTION: an option of scripts/bench/top.py, such as --seconds 10 or --rounds 5.
# Prints a table in Markdown. Needs root, or sudo.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/bench-top.sh" "$@"
cd "$root"
run_on_standin scripts/bench/top.py "$@"
