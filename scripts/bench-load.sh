#!/usr/bin/env bash
# gpuprobe under load: 1,000 to 500,000 calls a second and as many as two cores make, for 60 s each,
# with all memory freed and with none, with a report every two seconds and with one at the end.
# Measures its CPU time, resident memory, lost calls and the time that a report takes. The calls
# come from a workload on the stand-in CUDA libraries, which reports exact totals.
#
#     scripts/bench-load.sh [OPTION...]
#
# OPTION: an option of scripts/bench/load.py, such as --seconds 10 or --rates 4000,200000.
# --csv FOLDER keeps processor time and memory over time, for scripts/plot_monitor.py.
# Prints a table in Markdown. Needs root, or sudo.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/bench-load.sh" "$@"
cd "$root"
run_on_standin scripts/bench/load.py "$@"
