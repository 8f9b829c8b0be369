#!/usr/bin/env bash
# Installs, uses and removes what scripts/release.sh made, in fresh root file systems, and finds the leak of
# examples/leak.c with it.
#
#     scripts/test-package.sh
#
# The wheel is timed, too: from `pip install` to the line of a Python server that leaks in less than a minute.
# The .deb on Debian 11, 12 and 13, Ubuntu 22.04 and 24.04; the .rpm on a RHEL-like distribution, whose root file system is
# looked for in target/package/roots/rhel, and by rpm alone in Debian's; the .tar.gz, the wheel and the image; and what
# `cargo install` installs. The last lines say what has not been tried.
#
# debootstrap makes the root file systems once, in target/package/roots (ROOTS names another folder); each test is in a
# copy. DEBIAN_MIRROR and UBUNTU_MIRROR name other mirrors than debootstrap's own. Needs root, or sudo.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "ROOTS=${ROOTS:-}" "DEBIAN_MIRROR=${DEBIAN_MIRROR:-}" "UBUNTU_MIRROR=${UBUNTU_MIRROR:-}" \
    "$root/scripts/test-package.sh" "$@"
cd "$root"

roots=${ROOTS:-$root/target/package/roots}
out=$root/target/package/out
[[ -f $out/SHA256SUMS ]] || die "there is nothing to test: run scripts/release.sh"
(cd "$out" && sha256sum --check --quiet SHA256SUMS)
version=$(dpkg-deb --field "$out"/*.deb Version)
not_tried=()

fresh=
# shellcheck disable=SC2317,SC2046 # called by the trap; process ids are words
cleanup() {
    kill $(jobs -p) 2>/dev/null || true
    [[ -z $fresh ]] || rm -rf --one-file-system "$fresh"
    return_target
}
trap cleanup EXIT

# copy_root NAME: a fresh one.
copy_root() {
    [[ -z $fresh ]] || rm -rf --one-file-system "$fresh"
    fresh=$(mktemp -d "$roots/fresh.XXXXXX")
    cp -a "$roots/$1/." "$fresh/"
    cp "$out"/gpuprobe[-_]* "$fresh/"
}

# inside COMMAND...: in the fresh root, with the /proc and /sys of this machine, as in a container that may trace.
inside() {
    # shellcheck disable=SC2016 # the inner shell expands them
    unshare --mount --propagation private bash -euc '
        mount --rbind /proc "$0/proc"
        mount --rbind /sys "$0/sys"
        exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin HOME=/root \
            DEBIAN_FRONTEND=noninteractive timeout --kill-after=5 120 "$@"
    ' "$fresh" "$@"
}

# expect STATUS COMMAND...: ends with that status; without its messages.
expect() {
    local wanted=$1 status=0
    shift
    "$@" >"$roots/said" 2>&1 || status=$?
    [[ $status -eq $wanted ]] ||
        die "'$*' ended with $status, not $wanted: $(tail -n 3 "$roots/said")"
}

# says TEXT: the last command has said it.
says() {
    grep -qF -- "$1" "$roots/said" || die "it does not say '$1': $(head -n 5 "$roots/said")"
}

# find_leak COMMAND...: run by it, gpuprobe is this version, and names the line that leaks in a program outside.
leak_line=leak.c:$(grep -n 'cudaMalloc(&frame' examples/leak.c | cut -d: -f1)
find_leak() {
    expect 0 "$@" --version
    says "gpuprobe $version"
    "$leak" 1000 &
    local app=$!
    expect 0 "$@" --pid "$app" --duration 3s --interval 1h --stacks-shown "${options[@]}"
    says "$leak_line"
    kill "$app"
    wait "$app" 2>/dev/null || true
}
options=()

# use_and_remove ZSH_FOLDER REMOVE...: what is installed is all there and works, and nothing of it stays.
use_and_remove() {
    local file
    expect 0 inside gpuprobe --help
    says "What to trace:"
    expect 0 inside gpuprobe completions bash
    expect 2 inside gpuprobe --no-such-option
    expect 1 inside gpuprobe report /no-such-file
    expect 0 inside gpuprobe doctor
    options=(--record /run.sqlite)
    find_leak inside gpuprobe
    options=()
    for file in report explain; do
        expect 0 inside gpuprobe "$file" /run.sqlite
        says "$leak_line"
    done
    expect 0 inside gpuprobe plot /run.sqlite --output /run.png
    [[ $(head -c 8 "$fresh/run.png" | od -An -tx1) == " 89 50 4e 47 0d 0a 1a 0a" ]] || die "run.png is no picture"
    for file in bash-completion/completions/gpuprobe "zsh/$1/_gpuprobe" \
        fish/vendor_completions.d/gpuprobe.fish man/man1/gpuprobe.1.gz man/man1/gpuprobe-report.1.gz; do
        [[ -s $fresh/usr/share/$file ]] || die "the package has no $file"
    done
    # The unit starts what is installed.
    [[ -x $fresh$(sed -n 's/^ExecStart=\([^ ]*\) .*/\1/p' "$fresh/usr/lib/systemd/system/gpuprobe.service") ]] ||
        die "the unit starts something else"
    expect 0 "${@:2}"
    expect 127 inside gpuprobe --version
    [[ -z $(find "$fresh/usr" -name '*gpuprobe*' -print -quit) ]] || die "files are left behind"
}

ensure_packages gcc libc6-dev make podman rpm runc
check_bpf || exit 1
# The program of scripts/demo.sh, with its stand-in CUDA.
as_builder make -s -C tests/standin OUT="$root/target/standin"
library=$(find "$root/target/standin" -maxdepth 1 -name 'libcudart.so*' | sort | head -n 1)
as_builder mkdir -p target/demo
leak=$root/target/demo/leak
as_builder cc -g -O1 -o "$leak" examples/leak.c "$library" -Wl,-rpath,"$root/target/standin"

for suite in bullseye bookworm trixie jammy noble; do
    from=("${DEBIAN_MIRROR:-}" sid)
    [[ $suite != [jn]* ]] ||
        from=("${UBUNTU_MIRROR:-}" gutsy "--keyring=$roots/trixie/usr/share/keyrings/ubuntu-archive-keyring.gpg")
    if bootstrap_root "$suite" "$roots/$suite" "${from[@]}"; then
        say "the .deb on $suite"
        copy_root "$suite"
        expect 0 inside sh -c 'dpkg --install /gpuprobe_*.deb'
        use_and_remove vendor-completions inside dpkg --purge gpuprobe
    else
        not_tried+=("the .deb on $suite: $(tail -n 1 "$roots/$suite.log")")
    fi
done

if [[ -e $roots/rhel/usr/bin/rpm ]]; then
    say "the .rpm on a RHEL-like distribution"
    copy_root rhel
    expect 0 inside sh -c 'rpm --install /gpuprobe-*.rpm'
    use_and_remove site-functions inside rpm --erase gpuprobe
else
    not_tried+=("the .rpm on a RHEL-like distribution: no root file system in $roots/rhel")
fi
say "the .rpm, by rpm alone"
copy_root bullseye
expect 0 rpm --root "$fresh" --install --nodeps "$out"/*.rpm
use_and_remove site-functions rpm --root "$fresh" --erase --nodeps gpuprobe

say "the .tar.gz"
copy_root bullseye
expect 0 inside sh -c 'tar --extract --directory /usr/local --strip-components 1 --file /gpuprobe-*-linux.tar.gz'
find_leak inside gpuprobe

say "the wheel"
bootstrap_root bookworm "$roots/python" "${DEBIAN_MIRROR:-}" sid --include=python3-venv ||
    die "no Debian with Python: $(tail -n 1 "$roots/python.log")"
copy_root python
# As someone who has nothing but the README types it, beside a server that leaks.
LD_LIBRARY_PATH="$root/target/standin" python3 examples/chat.py 600 &
server=$!
began=$SECONDS
expect 0 inside sh -c 'python3 -m venv /venv && /venv/bin/pip install --no-index /*.whl'
expect 0 inside /venv/bin/gpuprobe explain --pid "$server"
took=$((SECONDS - began))
kill "$server"
says "LEAK      chat.py:$(grep -n ' server.answer(' examples/chat.py | cut -d: -f1) main > chat.py:$(
    grep -n 'sessions\[user\] = ' examples/chat.py | cut -d: -f1) Server.answer"
say "from pip install to the line that leaks: $took s"
[[ $took -lt 60 ]] || die "that is more than a minute"
find_leak inside /venv/bin/gpuprobe
find_leak inside /venv/bin/python -m gpuprobe
expect 0 inside /venv/bin/pip uninstall --yes gpuprobe
[[ -z $(find "$fresh/venv" -name '*gpuprobe*' -print -quit) ]] || die "pip leaves files behind"

say "the image"
podman=(podman --root "$roots/podman" --runroot "$roots/podman.run" --storage-driver vfs --cgroup-manager cgroupfs
    --runtime runc)
expect 0 "${podman[@]}" load --input "$out/gpuprobe-$version-image.tar"
find_leak timeout --kill-after=5 60 "${podman[@]}" run --rm --privileged --pid=host --network=none \
    --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "localhost/gpuprobe:$version"
expect 0 "${podman[@]}" rmi "localhost/gpuprobe:$version"

say "cargo install"
ensure_build_packages
ensure_cargo
as_builder cargo install --locked --quiet --path . --root target/package/cargo
find_leak target/package/cargo/bin/gpuprobe

say "what scripts/release.sh made installs, works and is removed"
for what in "${not_tried[@]}"; do
    printf '!!! NOT TRIED: %s\n' "$what"
done
