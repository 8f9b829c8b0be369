#!/usr/bin/env bash
# Makes the packages: gpuprobe_VERSION_amd64.deb, gpuprobe-VERSION-x86_64-linux.tar.gz
# and SHA256SUMS, in target/package/out.
#
#     scripts/package.sh
#
# The program is linked against the glibc of Debian 11 (2.31), so that it starts on any
# distribution since, with libelf and zlib of Debian 11 linked statically. These come from
# a root file system that debootstrap makes in target/package/sysroot, for which it needs
# root, or sudo; SYSROOT names one that is there. DEBIAN_MIRROR names another mirror than
# debootstrap's own.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "SYSROOT=${SYSROOT:-}" "DEBIAN_MIRROR=${DEBIAN_MIRROR:-}" "$root/scripts/package.sh" "$@"
cd "$root"
trap return_target EXIT

newest_glibc=2.31
most_bytes=15000000

[[ $(uname -m) == x86_64 ]] || die "packages are made on x86-64 only"
version=$(sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
work=$root/target/package
sysroot=${SYSROOT:-$work/sysroot}
out=$work/out
libraries=usr/lib/x86_64-linux-gnu

# ---- what is linked -----------------------------------------------------------

make_sysroot() {
    [[ -e $sysroot/$libraries/libelf.a ]] && return
    ensure_packages debootstrap
    say "fetching the libraries of Debian 11 into $sysroot"
    rm -rf "$sysroot"
    debootstrap --variant=minbase --include=libc6-dev,libelf-dev,zlib1g-dev \
        bullseye "$sysroot" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$work/debootstrap.log" 2>&1 ||
        die "debootstrap failed: $(tail -n 1 "$work/debootstrap.log")"
}

# Links with an absolute target would lead out of the root.
keep_links_inside() {
    local link
    while IFS= read -r -d '' link; do
        ln -sfr "$sysroot$(readlink "$link")" "$link"
    done < <(find "$sysroot/$libraries" "$sysroot/usr/lib64" -type l -lname '/*' -print0)
}

# Where the linker looks for libelf and zlib, and a compiler that links with the root's libc: of its own
# accord gcc looks in the folders beside it first, whatever --sysroot says.
choose_libraries() {
    as_builder mkdir -p "$work/static"
    as_builder ln -sf "$sysroot/$libraries/libelf.a" "$sysroot/$libraries/libz.a" "$work/static/"
    as_builder install -m 755 /dev/stdin "$work/cc" <<EOF
#!/bin/sh
exec cc --sysroot='$sysroot' -B'$sysroot/$libraries' -L'$sysroot/$libraries' "\$@"
EOF
}

# ---- the program ----------------------------------------------------------------

build_program() {
    say "building gpuprobe $version"
    as_builder env CARGO_TARGET_DIR="$work" CARGO_PROFILE_RELEASE_LTO=fat \
        CC="$work/cc" CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER="$work/cc" \
        LIBBPF_SYS_LIBRARY_PATH="$work/static" \
        cargo build --release --locked --features static
}

# Leaves the program and, beside it, its debug information, which debuggers find by the link.
split_program() {
    rm -rf "$out" "$work/root"
    install -D -m 755 "$work/release/gpuprobe" "$work/root/usr/bin/gpuprobe"
    local program=$work/root/usr/bin/gpuprobe
    mkdir -p "$out"
    objcopy --only-keep-debug --compress-debug-sections "$program" "$out/gpuprobe.debug"
    chmod 644 "$out/gpuprobe.debug"
    strip --strip-all "$program"
    objcopy --add-gnu-debuglink="$out/gpuprobe.debug" "$program"
}

# check_program: what was promised of it.
check_program() {
    local program=$work/root/usr/bin/gpuprobe bytes glibc
    bytes=$(stat -c %s "$program")
    [[ $bytes -le $most_bytes ]] || die "the program has $bytes bytes, more than $most_bytes"
    glibc=$(objdump -T "$program" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1)
    printf '%s\n' "$glibc" "$newest_glibc" | sort --version-sort --check=quiet ||
        die "the program needs glibc $glibc, newer than $newest_glibc"
    ! objdump -p "$program" | grep -E 'NEEDED +(libelf|libz)\.' ||
        die "libelf or zlib is not linked statically"
    say "the program has $bytes bytes and needs glibc $glibc"
}

# ---- packages -------------------------------------------------------------------

add_documents() {
    local program=$work/root/usr/bin/gpuprobe share=$work/root/usr/share
    "$program" man "$share/man/man1"
    gzip -9 -n "$share"/man/man1/*.1
    install -d "$share/bash-completion/completions" "$share/zsh/vendor-completions" \
        "$share/fish/vendor_completions.d" "$share/doc/gpuprobe"
    "$program" completions bash >"$share/bash-completion/completions/gpuprobe"
    "$program" completions zsh >"$share/zsh/vendor-completions/_gpuprobe"
    "$program" completions fish >"$share/fish/vendor_completions.d/gpuprobe.fish"
    install -m 644 README.md SECURITY.md "$share/doc/gpuprobe/"
    # uPlot is in the page of the HTML report.
    cat LICENSE web/LICENSES >"$share/doc/gpuprobe/copyright"
    gzip -9 -n <CHANGELOG.md >"$share/doc/gpuprobe/changelog.gz"
    install -D -m 644 deploy/systemd/gpuprobe.service "$work/root/usr/lib/systemd/system/gpuprobe.service"
    install -D -m 644 -t "$share/doc/gpuprobe/examples" deploy/prometheus/*.yml deploy/grafana/gpuprobe.json \
        deploy/kubernetes/gpuprobe.yaml
}

make_deb() {
    local kibibytes
    kibibytes=$(du -sk --apparent-size "$work/root/usr" | cut -f1)
    install -d "$work/root/DEBIAN"
    cat >"$work/root/DEBIAN/control" <<EOF
Package: gpuprobe
Version: $version
Architecture: amd64
Maintainer: The gpuprobe developers <gpuprobe@localhost>
Installed-Size: $kibibytes
Depends: libc6 (>= $newest_glibc), libgcc-s1
Section: devel
Priority: optional
Description: shows who holds GPU memory in running CUDA programs
 Attaches eBPF uprobes to the CUDA libraries of running programs, and shows live
 GPU memory by process and call site, leaks, kernel launches and copies. Programs
 need no restart, no recompilation and no change.
EOF
    dpkg-deb --root-owner-group --build -Zxz "$work/root" "$out/gpuprobe_${version}_amd64.deb" >/dev/null
    rm -r "$work/root/DEBIAN"
}

make_tar() {
    local name=gpuprobe-$version-x86_64-linux
    tar --create --gzip --file "$out/$name.tar.gz" --directory "$work/root/usr" \
        --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$(git log -1 --format=%ct)" --transform "s,^\.,$name," .
}

ensure_build_packages
ensure_packages binutils
ensure_cargo
as_builder mkdir -p "$work"
make_sysroot
keep_links_inside
choose_libraries
build_program
split_program
check_program
add_documents
make_deb
make_tar
(cd "$out" && sha256sum -- *.deb *.tar.gz *.debug >SHA256SUMS)
say "made in $out:"
ls -l "$out"
