#!/usr/bin/env bash
# Runs end-to-end tests on other kernels, in an emulated machine.
#
#     scripts/test-kernels.sh [VERSION...]
#
# VERSION is 6.1, 6.12, 6.18, 7.2, without arguments each of them, or any other that the configured
# Debian mirror has. Kernels are fetched by apt, as packages that are unpacked and not installed, and
# kept in ~/.cache/gpuprobe/kernels; remove one to get its newest build.
#
# GPUPROBE_KERNEL_SECONDS (900): after this long a machine is stopped.
# GPUPROBE_KERNEL_LOGS: a folder that keeps what each machine wrote.
#
# The last line is "N passed, N failed"; the exit status is 0 only if all passed.
# Emulation is slow: no timing here measures a probe's cost.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "$root/scripts/test-kernels.sh" "$@"
cd "$root"

versions=("$@")
if [[ ${#versions[@]} -eq 0 ]]; then
    versions=(6.1 6.12 6.18 7.2)
fi
seconds=${GPUPROBE_KERNEL_SECONDS:-900}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/kernels
parts=$root/scripts/kernels
target=${CARGO_TARGET_DIR:-$root/target}

work=$(mktemp -d)
machine=
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    if [[ -n $machine ]]; then
        kill "$machine" 2>/dev/null || true # timeout passes it on to the machine
        wait "$machine" 2>/dev/null || true
    fi
    return_target
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- kernels ----------------------------------------------------------------

# The mirror of Debian that this machine's apt uses, without the last slash.
find_mirror() {
    { cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } |
        sed -nE 's#^[^\#]*(https?://[^] ]+/debian)/?( .*|$)#\1#p' | head -n1
}

# Settings for a private apt, which sees every suite with kernels and does not touch the installed
# packages.
configure_apt() {
    local mirror suite keys=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=$(find_mirror)
    [[ -n $mirror ]] || die "no Debian mirror in the sources of apt: kernels come from there"
    mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
    for suite in bookworm trixie trixie-backports; do
        printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$mirror" "$suite"
    done >"$cache/apt/sources.list"
    for suite in bookworm-security trixie-security; do
        printf 'deb [signed-by=%s] %s-security %s main\n' "$keys" "$mirror" "$suite"
    done >>"$cache/apt/sources.list"
    cat >"$cache/apt/apt.conf" <<END
Dir::Etc::sourcelist "$cache/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$cache/apt/lists";
Dir::Cache "$cache/apt";
APT::Architecture "amd64";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
END
    export APT_CONFIG=$cache/apt/apt.conf
}

# package_of VERSION: the newest package with a kernel for virtual machines. From
# 7.1 on the bare kernel is in linux-binary-*, and linux-image-* only asks for it.
package_of() {
    apt-cache pkgnames |
        grep -E "^linux-(image|binary)-${1//./\\.}[.-][0-9].*cloud-amd64$" |
        sed -E 's/^linux-(image|binary)-(.*)$/\2 \1 &/' |
        sort -k1,1V -k2,2r | tail -n1 | cut -d' ' -f3
}

# kernel_in FOLDER
kernel_in() {
    find "$1" -name 'vmlinuz*' -type f 2>/dev/null | sort -V | tail -n1
}

# fetch_kernel VERSION: puts it into the cache, if it is not there.
fetch_kernel() {
    local version=$1 folder=$cache/$1 package
    [[ -z $(kernel_in "$folder") ]] || return 0
    say "fetching Linux $version"
    if [[ -z ${APT_CONFIG:-} ]]; then
        configure_apt
        apt-get -qq update </dev/null >&2 ||
            say "apt-get update is incomplete; trying with what there is"
    fi
    package=$(package_of "$version") || true
    [[ -n $package ]] || die "the mirror has no kernel $version for virtual machines"
    rm -rf "$work/package"
    mkdir "$work/package"
    (cd "$work/package" && apt-get -qq download "$package" && dpkg -x "$package"_*.deb unpacked) >&2
    # Modules are not needed, and are most of it.
    mkdir -p "$folder"
    cp "$(kernel_in "$work/package/unpacked")" "$folder/"
}

# ---- the machine's root -----------------------------------------------------

# with_libraries FILE...: copies files and the libraries that they need to their paths on this
# machine.
with_libraries() {
    local file library
    for file in "$@"; do
        mkdir -p "$guest$(dirname "$file")"
        cp -L "$file" "$guest$file"
        while read -r library; do
            if [[ ! -e $guest$library ]]; then
                mkdir -p "$guest$(dirname "$library")"
                cp -L "$library" "$guest$library"
            fi
        done < <(ldd "$file" 2>/dev/null | grep -oE '/[^ ]+ \(0x' | cut -d' ' -f1)
    done
}

# The same for all kernels: the tests, gpuprobe, the stand-in CUDA.
make_root() {
    local tests gpuprobe=$target/debug/gpuprobe standin=$target/standin log=$work/build
    say "building"
    "${builder_prefix[@]}" cargo test --locked --test e2e --no-run >"$log" 2>&1 ||
        { cat "$log" && die "the tests do not build"; }
    tests=$(sed -nE 's/.*Executable .*\((.*)\)$/\1/p' "$log")
    [[ -x $tests ]] || die "cargo does not say where the tests are"
    tests=$(realpath "$tests")
    as_builder make -s -C tests/standin "OUT=$standin"
    guest=$work/root
    mkdir -p "$guest"/{bin,dev,proc,sys,tmp,root,etc}
    cp "$(command -v busybox)" "$guest/bin/busybox"
    with_libraries "$(command -v busybox)"
    cp "$parts/init.sh" "$guest/init"
    chmod +x "$guest/init"
    echo 'root:x:0:0:root:/root:/bin/sh' >"$guest/etc/passwd"
    # Files whose paths were compiled into the tests.
    with_libraries "$gpuprobe" "$tests" "$standin"/lib*.so* \
        "$standin"/{workload,workload_static,workload_driver,workload_dlopen,workload_ptsz,paths,paths_bare}
    strip "$guest$gpuprobe" "$guest$tests"
    grep -v '^#' "$parts/tests.txt" | grep . >"$guest/tests"
    cat >"$guest/tests.sh" <<END
export GPUPROBE_STANDIN='$standin' GPUPROBE_DOCTOR_IS_CONTENT=1 GPUPROBE_PATIENCE=10
uname -r | sed 's/^/kernel: /'
'$gpuprobe' doctor >/tmp/doctor
status=\$?
sed 's/^/doctor: /' /tmp/doctor
[ \$status -eq 0 ] || exit 1
exec '$tests' --exact --test-threads=1 \$(cat /tests)
END
    (cd "$guest" && find . | busybox cpio -o -H newc 2>/dev/null) | gzip -1 >"$work/initrd"
}

# ---- running ----------------------------------------------------------------

passed=0
failed=0
failed_kernels=()
table=()

# said LOG PATTERN: the group of PATTERN in its first match in a log.
said() {
    sed -nE "s/$2.*/\\1/p" "$1" | head -n1 | tr -d '\r'
}

# The attach mode that a kernel is known to use; empty if that is not known.
expected_kind() {
    case $1 in
    6.1) echo "perf-event uprobes" ;;
    6.12) echo "uprobe.multi" ;;
    6.18 | 7.2) echo "uprobe.session" ;;
    esac
}

# run_on VERSION: boots it and runs the tests there.
run_on() {
    local version=$1 log=$work/$1.log console=$work/$1.console
    local status=0 options="console=ttyS0 panic=-1 quiet mitigations=off no_timer_check" start=$SECONDS
    local good bad kind wanted missing
    fetch_kernel "$version"
    say "Linux $version"
    : >"$log"
    # One thread for all processors: with one each, guests have died while the
    # kernel patched its own code.
    timeout --kill-after=10 "$seconds" qemu-system-x86_64 -accel tcg,thread=single -cpu max \
        -smp 2 -m 1536M -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$(kernel_in "$cache/$version")" -initrd "$work/initrd" -append "$options" \
        -serial "file:$console" -serial "file:$log" -serial "file:$work/status" </dev/null &
    machine=$!
    tail --pid="$machine" --sleep-interval=0.2 -n +1 -f "$log" | grep --line-buffered '^test .* \.\.\. ' &
    wait "$machine" || status=$?
    machine=
    wait
    good=$(sed -nE 's/^test .* \.\.\. ok\r?$/1/p' "$log" | wc -l)
    bad=$(sed -nE 's/^test .* \.\.\. FAILED\r?$/1/p' "$log" | wc -l)
    kind=$(said "$log" '^doctor: ok +attaching +(.*) will be used')
    wanted=$(expected_kind "$version")
    missing=$(sed -nE 's/^doctor: (note|MISSING) +(.*[^ ])  +(does not work|.*kernel).*/\2/p' "$log" | paste -sd, | sed 's/,/, /g')
    # One failure more: it hung or died, or no attach mode worked.
    if [[ $status -ne 0 || ! -s $work/status ]]; then
        say "Linux $version: no result after $((SECONDS - start)) s"
        tail -n5 "$console"
        bad=$((bad + 1))
    elif [[ $(tr -d '\r\n' <"$work/status") != 0 && $bad -eq 0 ]]; then
        bad=1
    fi
    if [[ -n $wanted && $kind != "$wanted" ]]; then
        say "Linux $version: $wanted was expected to be used"
        bad=$((bad + 1))
    fi
    if [[ $bad -gt 0 ]]; then
        failed_kernels+=("$version")
        sed -n '/^failures:/,$p' "$log"
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
    table+=("$(printf '%-10s %-28s %-20s %3d passed %3d failed %4d s  %s' "$version" \
        "$(said "$log" '^kernel: (.*)')" "${kind:-none}" "$good" "$bad" $((SECONDS - start)) \
        "${missing:+does not have: $missing}")")
    rm -f "$work/status"
    if [[ -n ${GPUPROBE_KERNEL_LOGS:-} ]]; then
        mkdir -p "$GPUPROBE_KERNEL_LOGS"
        cp "$log" "$console" "$GPUPROBE_KERNEL_LOGS/"
    fi
}

[[ $(uname -m) == x86_64 ]] || die "the kernels and the tests are of x86-64; this machine is not"
ensure_build_packages
ensure_packages qemu-system-x86 busybox
ensure_cargo
return_target
mkdir -p "$cache"
make_root
for version in "${versions[@]}"; do
    run_on "$version"
done

say "what was used:"
printf '      %s\n' "${table[@]}"
if [[ ${#failed_kernels[@]} -gt 0 ]]; then
    say "failed on: ${failed_kernels[*]}"
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed -eq 0 ]]
