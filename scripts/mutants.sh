#!/usr/bin/env bash
# Whether the unit and property tests find bugs: cargo-mutants changes the crates that are pure, a little
# each time, and runs the tests of the changed crate; what these do not see is tried with those of reports
# and recordings (tests/recordings). For before a release; a full run takes days, a sample of 100 an hour.
#
#     scripts/mutants.sh [--sample K/N] [OPTION...]
#
# --sample K/N: every Nth change, from the Kth on (0 to N-1), through all files. OPTION: of cargo mutants,
# as in `--file crates/engine/src/ledger.rs` or `--in-diff changes.diff`. Changes the code as committed.
# Prints what survived and is not in tests/mutants/accepted.txt and, as the last line, "N of M caught
# (P %)"; fails under 90 %. Installs cargo-mutants below target/ if it is missing. Needs no root.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

least_percent=90
accepted=$root/tests/mutants/accepted.txt
out=$root/target/mutants
tree=$out/tree
tools=$root/target/tools

export PATH=$PATH:$tools/bin
# Nobody steps through these; of a change, only its crate is built again.
export CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_DEV_DEBUG=0
unset CARGO_INCREMENTAL CARGO_TARGET_DIR
if ! cargo mutants --version >/dev/null 2>&1; then
    cargo install --locked --root "$tools" cargo-mutants
fi

options=(--output "$out" --no-shuffle --minimum-test-timeout 60 --exclude '**/tests.rs'
    --exclude '**/tests/**' --exclude 'crates/recording/src/writer/**')
for package in gpuprobe-engine gpuprobe-model gpuprobe-stacks gpuprobe-recording; do
    options+=(--package "$package")
done
if [[ ${1-} == --sample ]]; then
    options+=(--shard "$2" --sharding round-robin)
    shift 2
fi

cleanup() {
    git worktree remove --force "$tree" 2>/dev/null || true
}
trap cleanup EXIT
cleanup
mkdir -p "$out"
git worktree add --quiet --detach "$tree" HEAD
status=0
(cd "$tree" && cargo mutants --in-place "${options[@]}" "$@") || status=$?
# 2: some survived. 3: some timed out, which counts as caught.
[[ $status -eq 0 || $status -eq 2 || $status -eq 3 ]] || die "cargo mutants has failed ($status)"

results=$out/mutants.out
say "with the tests of reports and recordings:"
python3 -B scripts/mutants_again.py "$tree" "$results" | tee "$out/again.txt"

# A line of the list is a mutant as cargo-mutants names it, without its line number; after a tab,
# why it may survive.
mapfile -t missed < <(sed -nE 's/^missed: //; T; s/:[0-9]+:[0-9]+:/:/; p' "$out/again.txt")
survived=0
for mutant in "${missed[@]}"; do
    if ! cut -f 1 "$accepted" | grep --quiet --fixed-strings --line-regexp -- "$mutant"; then
        echo "survived: $mutant"
        survived=$((survived + 1))
    fi
done
again=$(grep --count '^caught: ' "$out/again.txt") || true
caught=$(($(cat "$results/caught.txt" "$results/timeout.txt" | wc -l) + again))
all=$((caught + survived))
[[ $all -gt 0 ]] || die "nothing was changed"
percent=$((100 * caught / all))
printf '%d of %d caught (%d %%)\n' "$caught" "$all" "$percent"
[[ $percent -ge $least_percent ]]
