#!/usr/bin/env bash
# Mutation test by hand-written bugs: applies the patches of tests/mutants, one at a time, to a copy
# of the tree, and runs the suite that has to find each. For before a release, and after a change to
# the code that they patch.
#
#     scripts/planted.sh [NAME...]
#
# Without NAME, all. Each patch describes its bug, and its line "Suite:" has the command that has to
# fail. That command must pass without the patch, and the bug must compile: the exit status says so,
# and the last line, "N caught, N survived, N failed". Needs root, or sudo. Takes a minute or two a
# bug.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/planted.sh" "$@"
cd "$root"

# A suite that hangs has found the bug, too.
suite_seconds=400

ensure_build_packages
ensure_cargo
copy=$root/target/planted/tree
export CARGO_TARGET_DIR=$root/target/planted/target
mkdir -p "$copy" "$CARGO_TARGET_DIR"
trap return_target EXIT

# The tree with uncommitted changes. Unchanged files keep their times, so that they are not built
# again.
fresh=$(mktemp -d)
git ls-files -z --cached --others --exclude-standard |
    tar --create --null --files-from=- --ignore-failed-read | tar --extract --directory="$fresh"
(cd "$copy" && find . -type f -print0) | while IFS= read -r -d '' file; do
    [[ -e $fresh/$file ]] || rm "$copy/$file"
done
(cd "$fresh" && find . -type f -print0) | while IFS= read -r -d '' file; do
    if ! cmp --silent "$fresh/$file" "$copy/$file"; then
        mkdir -p "$(dirname "$copy/$file")"
        cp --preserve=mode "$fresh/$file" "$copy/$file"
    fi
done
rm -rf "$fresh"

# run LOG COMMAND...: in the copy.
run() {
    local log=$1
    shift
    (cd "$copy" && timeout --kill-after=10 "$suite_seconds" "$@") >"$log" 2>&1
}

log=$CARGO_TARGET_DIR/planted.log
caught=0
survived=0
failed=0

# plant PATCH [OPTION...]: in the copy, or with --reverse from it.
plant() {
    patch --directory="$copy" --strip=1 --silent --no-backup-if-mismatch "${@:2}" <"$1"
}

# try NAME PATCH: prints the outcome.
try() {
    local name=$1 patch=$2 word suite build=()
    read -r -a suite < <(sed -n 's/^Suite: //p' "$patch") || die "$patch names no suite"
    for word in "${suite[@]}"; do
        [[ $word == -- ]] && break
        build+=("$word")
    done
    if ! plant "$patch" --forward --dry-run; then
        echo "does not apply: $name"
        failed=$((failed + 1))
        return
    fi
    plant "$patch"
    if ! run "$log" "${build[@]}" --no-run; then
        echo "does not build: $name (see $log)"
        failed=$((failed + 1))
    elif run "$log" "${suite[@]}"; then
        echo "SURVIVED:       $name"
        survived=$((survived + 1))
    else
        echo "caught:         $name ($(grep -c '^test .* [.][.][.] FAILED' "$log") failed)"
        caught=$((caught + 1))
    fi
    plant "$patch" --reverse
}

names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
    for patch in tests/mutants/*.patch; do
        names+=("$(basename "$patch" .patch)")
    done
fi

for name in "${names[@]}"; do
    try "$name" "$root/tests/mutants/$name.patch"
done

# A suite that fails without the bug proves nothing.
for name in "${names[@]}"; do
    sed -n 's/^Suite: //p' "tests/mutants/$name.patch"
done | sort -u | while read -r -a suite; do
    if ! run "$log" "${suite[@]}"; then
        echo "fails without a bug: ${suite[*]} (see $log)"
        exit 1
    fi
done || failed=$((failed + 1))

printf '%d caught, %d survived, %d failed\n' "$caught" "$survived" "$failed"
[[ $survived -eq 0 && $failed -eq 0 ]]
