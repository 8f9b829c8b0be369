#!/usr/bin/env bash
# Installs, uses and removes the package that scripts/package.sh made, in fresh root file
# systems of Debian 11, 12 and 13.
#
#     scripts/test-package.sh [FILE.deb]
#
# debootstrap makes them once, in target/package/roots (ROOTS names another folder); each
# test is in a copy. DEBIAN_MIRROR is where they are fetched. Needs root, or sudo.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "ROOTS=${ROOTS:-}" "DEBIAN_MIRROR=${DEBIAN_MIRROR:-}" "$root/scripts/test-package.sh" "$@"
cd "$root"

mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
roots=${ROOTS:-$root/target/package/roots}
packages=(target/package/out/gpuprobe_*_amd64.deb)
package=${1:-${packages[0]}}
[[ -f $package ]] || die "there is no package: run scripts/package.sh"
package=$(realpath "$package")
version=$(dpkg-deb --field "$package" Version)

fresh=
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    if [[ -n $fresh ]]; then
        rm -rf --one-file-system "$fresh"
    fi
    return_target
}
trap cleanup EXIT

make_root() {
    [[ -e $roots/$1/var/lib/dpkg/status ]] && return
    say "fetching Debian $1"
    mkdir -p "$roots"
    rm -rf "${roots:?}/$1"
    debootstrap --variant=minbase "$1" "$roots/$1" "$mirror" >"$roots/$1.log" 2>&1 ||
        die "debootstrap of $1 failed: $(tail -n 1 "$roots/$1.log")"
}

# inside COMMAND...: in the fresh root, without its messages unless it fails.
inside() {
    chroot "$fresh" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        DEBIAN_FRONTEND=noninteractive "$@"
}

# expect STATUS COMMAND...: ends with that status.
expect() {
    local wanted=$1 status=0
    shift
    inside "$@" >"$fresh/said" 2>&1 || status=$?
    [[ $status -eq $wanted ]] ||
        die "'$*' ended with $status, not $wanted: $(tail -n 3 "$fresh/said")"
}

# says TEXT: the last command has said it.
says() {
    grep -qF -- "$1" "$fresh/said" || die "it does not say '$1': $(head -n 5 "$fresh/said")"
}

test_in() {
    say "Debian $1"
    fresh=$(mktemp -d "$roots/fresh.XXXXXX")
    cp -a "$roots/$1/." "$fresh/"
    cp "$package" "$fresh/gpuprobe.deb"
    expect 0 dpkg --install /gpuprobe.deb
    expect 0 gpuprobe --version
    says "gpuprobe $version"
    expect 0 gpuprobe --help
    says "What to trace:"
    expect 0 gpuprobe functions
    says cudaMalloc
    expect 0 gpuprobe completions bash
    expect 2 gpuprobe --no-such-option
    expect 1 gpuprobe report /no-such-file
    # Without /proc and BPF in the root, doctor says what is missing; it must not crash.
    inside gpuprobe doctor >"$fresh/said" 2>&1 || [[ $? -eq 1 ]] || die "doctor: $(tail -n 3 "$fresh/said")"
    local file
    for file in bash-completion/completions/gpuprobe zsh/vendor-completions/_gpuprobe \
        fish/vendor_completions.d/gpuprobe.fish man/man1/gpuprobe.1.gz man/man1/gpuprobe-report.1.gz; do
        [[ -s $fresh/usr/share/$file ]] || die "the package has no $file"
    done
    expect 0 dpkg --purge gpuprobe
    expect 127 gpuprobe --version
    [[ -z $(find "$fresh/usr" -name '*gpuprobe*' -print -quit) ]] || die "files are left behind"
    rm -rf --one-file-system "$fresh"
    fresh=
}

ensure_packages debootstrap
for suite in bullseye bookworm trixie; do
    make_root "$suite"
    test_in "$suite"
done
say "the package installs, works and is removed on Debian 11, 12 and 13"
