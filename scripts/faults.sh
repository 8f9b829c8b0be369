#!/usr/bin/env bash
# Kills gpuprobe at every stage of a run and with each kind of probe, often enough to find rare
# races; for before a release. scripts/test.sh runs a third of it.
#
#     scripts/faults.sh [TEST...]
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/faults.sh" "$@"
cd "$root"

ensure_build_packages
ensure_cargo
return_target
trap return_target EXIT
"${builder_prefix[@]}" cargo test --locked --test faults --no-run
GPUPROBE_ALL_ROUNDS=1 cargo test --locked --test faults -- "$@"
