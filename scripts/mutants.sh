#!/usr/bin/env bash
# Whether the tests find bugs: cargo-mutants changes the pure crates at N places, chosen at random, one at a time,
# and runs the tests of the changed crate.
#
#     scripts/mutants.sh N [--seed SEED] [--list] [OPTION...]
#
# The same SEED (1) takes the same places of the same code. --list prints them and runs nothing. OPTION: of cargo
# mutants, as in `--file crates/engine/src/ledger.rs`. Changes the code as committed, in a work tree of its own below
# target/. Prints what survived and is not in tests/mutants/accepted.txt, which says why it may, and as the last line
# "N of M caught". Installs cargo-mutants below target/ if it is missing. Needs no root; a change takes about a minute.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

usage="usage: scripts/mutants.sh N [--seed SEED] [--list] [OPTION...]"
[[ ${1-} =~ ^[1-9][0-9]*$ ]] || die "$usage"
number=$1 seed=1 only_lists=
shift
if [[ ${1-} == --seed ]]; then
    seed=${2:?$usage}
    shift 2
fi
if [[ ${1-} == --list ]]; then
    only_lists=1
    shift
fi

out=$root/target/mutants
tree=$out/tree
tools=$root/target/tools
export PATH=$PATH:$tools/bin
if ! cargo mutants --version >/dev/null 2>&1; then
    cargo install --locked --root "$tools" cargo-mutants
fi

# shellcheck disable=SC2317 # called by the trap
cleanup() {
    git -C "$root" worktree remove --force "$tree" 2>/dev/null || true
}
trap cleanup EXIT
cleanup
mkdir -p "$out"
git worktree add --quiet --detach "$tree" HEAD
cd "$tree"

options=(--exclude '**/tests.rs' --exclude '**/tests/**' --exclude 'crates/recording/src/writer/**'
    --package gpuprobe-engine --package gpuprobe-model --package gpuprobe-stacks --package gpuprobe-recording "$@")
mapfile -t chosen < <(cargo mutants --list "${options[@]}" |
    shuf --head-count="$number" --random-source=<(yes "$seed"))
[[ ${#chosen[@]} -gt 0 ]] || die "there is nothing to change"
if [[ -n $only_lists ]]; then
    printf '%s\n' "${chosen[@]}"
    exit
fi

# Nobody steps through these; of a change, only its crate is built again.
export CARGO_PROFILE_DEV_DEBUG=0
unset CARGO_INCREMENTAL CARGO_TARGET_DIR
names=()
for mutant in "${chosen[@]}"; do
    # shellcheck disable=SC2001 # a bracket expression
    names+=(--re "^$(sed 's/[][(){}.*+?^$|\\&#~-]/\\&/g' <<<"$mutant")\$")
done
status=0
cargo mutants --in-place --no-shuffle --minimum-test-timeout 60 --output "$out" "${options[@]}" "${names[@]}" || status=$?
# 2: some survived. 3: some timed out, which counts as caught.
[[ $status -eq 0 || $status -eq 2 || $status -eq 3 ]] || die "cargo mutants has failed ($status)"

results=$out/mutants.out survived=0
# A line of the list is a mutant as cargo-mutants names it, without its line number; after a tab, why it may survive.
while read -r mutant; do
    if ! cut -f 1 "$root/tests/mutants/accepted.txt" |
        grep --quiet --fixed-strings --line-regexp -- "$(sed -E 's/:[0-9]+:[0-9]+:/:/' <<<"$mutant")"; then
        echo "survived: $mutant"
        survived=$((survived + 1))
    fi
done <"$results/missed.txt"
caught=$(cat "$results/caught.txt" "$results/timeout.txt" | wc -l)
printf '%d of %d caught\n' "$caught" $((caught + survived))
