#!/usr/bin/env bash
# Installs, uses and removes the package that scripts/package.sh made, in fresh root file
# systems of Debian 11, 12 and 13.
#
#     scripts/test-package.sh [FILE.deb]
#
# In each of them it finds the leak of examples/leak.c, and draws a recording of it.
#
# debootstrap makes them once, in target/package/roots (ROOTS names another folder); each
# test is in a copy. DEBIAN_MIRROR names another mirror than debootstrap's own. Needs root,
# or sudo.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "ROOTS=${ROOTS:-}" "DEBIAN_MIRROR=${DEBIAN_MIRROR:-}" "$root/scripts/test-package.sh" "$@"
cd "$root"

roots=${ROOTS:-$root/target/package/roots}
packages=(target/package/out/gpuprobe_*_amd64.deb)
package=${1:-${packages[0]}}
[[ -f $package ]] || die "there is no package: run scripts/package.sh"
package=$(realpath "$package")
version=$(dpkg-deb --field "$package" Version)

fresh=
app=
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    if [[ -n $app ]]; then
        kill "$app" 2>/dev/null || true
        wait "$app" 2>/dev/null || true
    fi
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
    debootstrap --variant=minbase "$1" "$roots/$1" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$roots/$1.log" 2>&1 ||
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

# mounted COMMAND...: like expect 0, with the /proc and /sys of this machine in the root, as in a container
# that may trace.
mounted() {
    # shellcheck disable=SC2016 # the inner shell expands them
    unshare --mount --propagation private bash -euc '
        mount --rbind /proc "$0/proc"
        mount --rbind /sys "$0/sys"
        exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
    ' "$fresh" timeout --kill-after=5 60 "$@" >"$fresh/said" 2>&1 ||
        die "'$*' failed: $(tail -n 3 "$fresh/said")"
}

# A program that leaks runs outside; what is installed names its line, and draws its recording.
find_leak() {
    local line
    line=$(grep -n 'cudaMalloc(&frame' examples/leak.c | cut -d: -f1)
    "$program" 1000 &
    app=$!
    mounted gpuprobe --pid "$app" --duration 3s --interval 1h --stacks-shown --record /run.sqlite
    says "leak.c:$line"
    kill "$app"
    wait "$app" 2>/dev/null || true
    app=
    mounted gpuprobe report /run.sqlite
    says "leak.c:$line"
    mounted gpuprobe explain /run.sqlite
    says "leak.c:$line"
    mounted gpuprobe plot /run.sqlite --output /run.png
    [[ $(head -c 8 "$fresh/run.png" | od -An -tx1) == " 89 50 4e 47 0d 0a 1a 0a" ]] || die "run.png is no picture"
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
    expect 0 gpuprobe completions bash
    expect 2 gpuprobe --no-such-option
    expect 1 gpuprobe report /no-such-file
    # Without /proc and BPF in the root, doctor says what is missing; it must not crash.
    inside gpuprobe doctor >"$fresh/said" 2>&1 || [[ $? -eq 1 ]] || die "doctor: $(tail -n 3 "$fresh/said")"
    find_leak
    local file
    for file in bash-completion/completions/gpuprobe zsh/vendor-completions/_gpuprobe \
        fish/vendor_completions.d/gpuprobe.fish man/man1/gpuprobe.1.gz man/man1/gpuprobe-report.1.gz; do
        [[ -s $fresh/usr/share/$file ]] || die "the package has no $file"
    done
    # The unit starts what is installed.
    [[ -x $fresh$(sed -n 's/^ExecStart=\([^ ]*\) .*/\1/p' "$fresh/usr/lib/systemd/system/gpuprobe.service") ]] ||
        die "the unit starts something else"
    expect 0 dpkg --purge gpuprobe
    expect 127 gpuprobe --version
    [[ -z $(find "$fresh/usr" -name '*gpuprobe*' -print -quit) ]] || die "files are left behind"
    rm -rf --one-file-system "$fresh"
    fresh=
}

ensure_packages debootstrap gcc libc6-dev make
check_bpf || exit 1
# The program of scripts/demo.sh, with its stand-in CUDA.
as_builder make -s -C tests/standin OUT="$root/target/standin"
library=$(find "$root/target/standin" -maxdepth 1 -name 'libcudart.so*' | sort | head -n 1)
as_builder mkdir -p target/demo
program=$root/target/demo/leak
as_builder cc -g -O1 -o "$program" examples/leak.c "$library" -Wl,-rpath,"$root/target/standin"
for suite in bullseye bookworm trixie; do
    make_root "$suite"
    test_in "$suite"
done
say "the package installs, works and is removed on Debian 11, 12 and 13"
