#!/usr/bin/env bash
# Compares what a Prometheus gets from `gpuprobe serve` by OTLP with what another one scrapes, and both with the totals
# of workloads: every series, its name and its labels.
#
#     scripts/check-otlp.sh [PROMETHEUS]
#
# PROMETHEUS is a Prometheus 3 (`prometheus`); it runs on 127.0.0.1 twice. Debian's has no OTLP receiver. Needs root and
# BPF. Not part of CI.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

prometheus=$(command -v "${1:-prometheus}") || die "no program ${1:-prometheus}"
prometheus=$(realpath "$prometheus")
# Its help is wrapped.
help=$("$prometheus" --help 2>&1) || die "$prometheus --help failed"
[[ $help == *web.enable-otlp-receiver* ]] || die "$prometheus has no --web.enable-otlp-receiver; give one that has"
cd "$root"
"$prometheus" --version 2>&1 | head -n1
log=$(mktemp)
trap 'rm "$log"' EXIT
GPUPROBE_OTLP_PROMETHEUS=$prometheus cargo test --profile test --locked --test e2e -- --ignored --nocapture \
    root_pushed_sums_of_a_prometheus_are_those_of_a_scrape | tee "$log"
grep -q '^test result: ok\. 1 passed' "$log" || die "the test did not run"
