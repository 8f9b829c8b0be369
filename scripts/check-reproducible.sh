#!/usr/bin/env bash
# Builds the release twice, in two folders, and compares.
#
#     scripts/check-reproducible.sh [CARGO_PROFILE]
#
# The last line says whether the programs are identical, byte for byte; so does the exit status.
# They are reproducible because they contain no build path (--remap-path-prefix) and no time.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
profile=${1:-release}
ensure_build_packages
ensure_cargo

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A copy of the tracked files, with uncommitted changes.
copy_to() {
    mkdir -p "$1"
    git ls-files -z | tar --null --files-from=- --create | tar --extract --directory "$1"
}

# build FOLDER: prints the checksum of the program.
build() {
    local sources=$1/gpuprobe home=${CARGO_HOME:-$HOME/.cargo} binary
    copy_to "$sources"
    say "building in $sources" >&2
    (
        cd "$sources"
        SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct) \
            RUSTFLAGS="--remap-path-prefix=$sources=gpuprobe --remap-path-prefix=$home=cargo" \
            CFLAGS="-ffile-prefix-map=$sources=gpuprobe -ffile-prefix-map=$home=cargo" \
            CARGO_TARGET_DIR="$sources/target" \
            cargo build --locked --profile "$profile" --bin gpuprobe >&2
    )
    binary=("$sources"/target/*/gpuprobe)
    sha256sum <"${binary[0]}" | cut -d' ' -f1
}

# The names differ in length, too, so that a path that is padded out does not hide.
first=$(build "$folder/one")
second=$(build "$folder/somewhere-else/two")
printf '%s\n%s\n' "$first" "$second"
if [[ $first == "$second" ]]; then
    say "the two programs are the same"
else
    die "the two programs differ"
fi
