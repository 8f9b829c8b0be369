#!/usr/bin/env bash
# gpuprobe serve under load: 200 processes with 6,400 call sites, and as many calls a second as are asked for;
# a scrape every second. Measures the times of the scrapes, lost events, and CPU time beside --memleak alone.
#
#     scripts/bench-serve.sh [OPTION...]
#
# OPTION: an option of scripts/bench/serve.py, such as --seconds 10 or --rate 50000.
# Prints a table in Markdown. Needs root, or sudo.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/bench-serve.sh" "$@"
cd "$root"
run_on_standin scripts/bench/serve.py "$@"
