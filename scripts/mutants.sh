#!/usr/bin/env bash
# Whether the unit and property tests find bugs: cargo-mutants changes the crates that are pure, a little
# each time, and runs the tests. For before a release; a full run takes most of a day.
#
#     scripts/mutants.sh [OPTION...]
#
# OPTION: of cargo mutants, as in `--file crates/engine/src/ledger.rs`, `--shard 0/20` or
# `--in-diff changes.diff`. Prints what survived and is not in tests/mutants/accepted.txt and, as the
# last line, "N of M caught (P %)"; fails under 90 %. Installs cargo-mutants below target/ if it is
# missing. Needs no root.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

least_percent=90
accepted=tests/mutants/accepted.txt
out=target/mutants
tools=$root/target/tools

export PATH=$PATH:$tools/bin
if ! cargo mutants --version >/dev/null 2>&1; then
    cargo install --locked --root "$tools" cargo-mutants
fi

# The mutated crates, and the crates whose tests are run: the report's also test the ledger.
packages=(gpuprobe-engine gpuprobe-model gpuprobe-stacks gpuprobe-recording)
options=(--output "$out" --no-shuffle --minimum-test-timeout 60 --exclude '**/tests.rs'
    --exclude '**/tests/**' --exclude 'crates/recording/src/writer/**')
for package in "${packages[@]}"; do
    options+=(--package "$package" --test-package "$package")
done
mkdir -p "$out"
status=0
cargo mutants "${options[@]}" --test-package gpuprobe-report "$@" || status=$?
# 2: some survived. 3: some timed out, which counts as caught.
[[ $status -eq 0 || $status -eq 2 || $status -eq 3 ]] || die "cargo mutants has failed ($status)"

# A line of the list is a mutant as cargo-mutants names it, without its line number; after a tab,
# why it may survive.
results=$out/mutants.out
mapfile -t missed < <(sed -E 's/:[0-9]+:[0-9]+:/:/' "$results/missed.txt")
survived=0
for mutant in "${missed[@]}"; do
    if ! cut -f 1 "$accepted" | grep --quiet --fixed-strings --line-regexp -- "$mutant"; then
        echo "survived: $mutant"
        survived=$((survived + 1))
    fi
done
caught=$(cat "$results/caught.txt" "$results/timeout.txt" | wc -l)
all=$((caught + survived))
[[ $all -gt 0 ]] || die "nothing was changed"
percent=$((100 * caught / all))
printf '%d of %d caught (%d %%)\n' "$caught" "$all" "$percent"
[[ $percent -ge $least_percent ]]
