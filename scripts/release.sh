#!/usr/bin/env bash
# Makes what is released for x86-64, in target/package/out: .tar.gz, .deb, .rpm, a wheel, a container image for
# `docker load`, the program's symbols, and SHA256SUMS.
#
#     scripts/release.sh [--twice]
#
# The program needs glibc 2.28 or newer (Debian 10, RHEL 8, Ubuntu 18.10); libelf and zlib are linked statically. It is
# linked with the libraries of Debian 11, and the image is made of those of Debian 13: debootstrap fetches both, as root
# (by sudo, if need be). DEBIAN_MIRROR names another mirror than debootstrap's own.
#
# Built again from the same commit, every file is the same, byte for byte: with --twice it is built a second time in
# another folder, and compared.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become_root "DEBIAN_MIRROR=${DEBIAN_MIRROR:-}" "$root/scripts/release.sh" "$@"
cd "$root"
umask 022
trap return_target EXIT

newest_glibc=2.28
most_bytes=12000000

[[ $(uname -m) == x86_64 ]] || die "releases are made on x86-64 only"
version=$(sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
summary=$(sed -n 's/^description = "\(.*\)"$/\1/p' Cargo.toml)
description="Attaches eBPF uprobes to the CUDA libraries of running programs: GPU memory by process and call site,
 leaks, kernel launches and copies, without a restart, a recompilation or a change of the program."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
work=$root/target/package
roots=${ROOTS:-$work/roots}
sysroot=$roots/sysroot
libraries=usr/lib/x86_64-linux-gnu
out=$work/out
files=$work/root # what is installed
program=$files/usr/bin/gpuprobe

# ---- the program ----------------------------------------------------------------

# A compiler that links with the sysroot's libraries: of its own accord gcc looks in the folders beside it first,
# whatever --sysroot says. Of glibc's newer functions, pow and log have older versions, and the standard library does
# without the other two where they are absent, as undefined weak symbols are.
make_compiler() {
    bootstrap_root bullseye "$sysroot" "${DEBIAN_MIRROR:-}" sid --include=libc6-dev,libelf-dev,zlib1g-dev ||
        die "debootstrap failed: $(tail -n 1 "$sysroot.log")"
    # Links with an absolute target would lead out of the root.
    local link
    while IFS= read -r -d '' link; do
        ln -sfr "$sysroot$(readlink "$link")" "$link"
    done < <(find "$sysroot/$libraries" "$sysroot/usr/lib64" -type l -lname '/*' -print0)
    as_builder mkdir -p "$work/static"
    as_builder ln -sf "$sysroot/$libraries/libelf.a" "$sysroot/$libraries/libz.a" "$work/static/"
    as_builder cc -O2 -fPIC -x c -c -o "$work/static/older.o" - <<'EOF'
__asm__(".symver older_pow, pow@GLIBC_2.2.5\n.symver older_log, log@GLIBC_2.2.5");
double older_pow(double, double), older_log(double);
double __wrap_pow(double x, double y) { return older_pow(x, y); }
double __wrap_log(double x) { return older_log(x); }
EOF
    as_builder install -m 755 /dev/stdin "$work/cc" <<EOF
#!/bin/sh
exec cc --sysroot='$sysroot' -B'$sysroot/$libraries' -L'$sysroot/$libraries' '-Wl,$work/static/older.o' \
    -Wl,--wrap=pow,--wrap=log,--wrap=gettid,--wrap=posix_spawn_file_actions_addchdir_np "\$@"
EOF
    # libbpf-cargo unpacks its headers into a folder with a random name, which would be in the BTF.
    as_builder install -D -m 755 /dev/stdin "$work/bin/clang" <<EOF
#!/bin/sh
for folder; do case \$folder in */bpf/src) break ;; esac; done
exec '$(command -v clang)' "-ffile-prefix-map=\$folder=libbpf" "\$@"
EOF
}

# The program; and beside the packages its symbols, which debuggers find by the link.
build_program() {
    local home=${CARGO_HOME:-$builder_home/.cargo}
    say "building gpuprobe $version"
    as_builder env PATH="$work/bin:$PATH" CC="$work/cc" CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER="$work/cc" \
        CARGO_TARGET_DIR="$work" LIBBPF_SYS_LIBRARY_PATH="$work/static" \
        CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
        CFLAGS="-ffile-prefix-map=$root=gpuprobe -ffile-prefix-map=$home=cargo" \
        RUSTFLAGS="--remap-path-prefix=$root=gpuprobe --remap-path-prefix=$home=cargo" \
        cargo build --release --locked --bin gpuprobe --features static
    rm -rf "$out" "$files"
    install -D -m 755 "$work/release/gpuprobe" "$program"
    mkdir -p "$out"
    objcopy --only-keep-debug --compress-debug-sections "$program" "$out/gpuprobe.debug"
    chmod 644 "$out/gpuprobe.debug"
    strip --strip-all "$program"
    objcopy --add-gnu-debuglink="$out/gpuprobe.debug" "$program"
}

# What was promised of it, and of the library in it that --activity loads into a traced program.
check_program() {
    local bytes glibc collector
    bytes=$(stat -c %s "$program")
    [[ $bytes -le $most_bytes ]] || die "the program has $bytes bytes, more than $most_bytes"
    collector=$(find "$work/release/build" -path '*/release/libgpuprobe_collector.so' -printf '%T@ %p\n' | sort -n | tail -n 1)
    glibc=$(objdump -T "$program" "${collector#* }" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1)
    printf '%s\n' "$glibc" "$newest_glibc" | sort --version-sort --check=quiet ||
        die "the program needs glibc $glibc, newer than $newest_glibc"
    ! objdump -p "$program" | grep -E 'NEEDED +(libelf|libz)\.' ||
        die "libelf or zlib is not linked statically"
    say "the program has $bytes bytes and needs glibc $glibc"
}

# ---- packages -------------------------------------------------------------------

add_documents() {
    local share=$files/usr/share
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
    install -D -m 644 deploy/systemd/gpuprobe.service "$files/usr/lib/systemd/system/gpuprobe.service"
    install -D -m 644 -t "$share/doc/gpuprobe/examples" deploy/prometheus/*.yml deploy/grafana/gpuprobe.json \
        deploy/kubernetes/gpuprobe.yaml
}

# archive FOLDER [OPTION...]: tar that does not tell when, where and by whom.
archive() {
    tar --create --directory "$1" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" "${@:2}" .
}

make_tar() {
    local name=gpuprobe-$version-x86_64-linux
    archive "$files/usr" --transform "s,^\.,$name," | gzip -9 -n >"$out/$name.tar.gz"
}

make_deb() {
    install -D -m 644 /dev/stdin "$files/DEBIAN/control" <<EOF
Package: gpuprobe
Version: $version
Architecture: amd64
Maintainer: The gpuprobe developers <gpuprobe@localhost>
Installed-Size: $(du -sk --apparent-size "$files/usr" | cut -f1)
Depends: libc6 (>= $newest_glibc), libgcc-s1
Section: devel
Priority: optional
Description: $summary
 $description
EOF
    dpkg-deb --root-owner-group --build -Zxz "$files" "$out/gpuprobe_${version}_amd64.deb" >/dev/null
    rm -r "$files/DEBIAN"
}

# The completions of zsh are elsewhere than in Debian.
make_rpm() {
    rm -rf "$work/rpm"
    install -D -m 644 /dev/stdin "$work/rpm/gpuprobe.spec" <<EOF
Name: gpuprobe
Version: $version
Release: 1
Summary: $summary
License: Apache-2.0
%description
$description
%install
cp -a '$files/.' %{buildroot}
mv %{buildroot}/usr/share/zsh/vendor-completions %{buildroot}/usr/share/zsh/site-functions
%files
%defattr(-,root,root)
$(cd "$files" && find usr -type d -path '*/gpuprobe*' -printf '%%dir /%p\n' -o -type f -printf '/%p\n' |
    sed 's,vendor-completions,site-functions,' | sort)
EOF
    rpmbuild -bb --quiet --target x86_64 --define "_topdir $work/rpm" --define "_rpmdir $out" \
        --define '_rpmfilename gpuprobe-%{VERSION}-%{RELEASE}.%{ARCH}.rpm' --define '_buildhost localhost' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
        --define '_binary_payload w9.xzdio' --define '_build_id_links none' --define '__os_install_post %nil' \
        --define 'debug_package %nil' "$work/rpm/gpuprobe.spec" >"$work/rpm/log" 2>&1 ||
        die "rpmbuild failed: $(tail -n 3 "$work/rpm/log")"
}

make_wheel() {
    python3 - "$version" "$summary" "$files" "$out" <<'EOF'
import base64, hashlib, os, sys, time, zipfile
from pathlib import Path

version, summary, files, out = sys.argv[1:]
name, tag = f"gpuprobe-{version}", "py3-none-manylinux_2_28_x86_64"
metadata = f"""Metadata-Version: 2.4
Name: gpuprobe
Version: {version}
Summary: {summary}
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.8
Description-Content-Type: text/markdown

"""
main = '''"""`python -m gpuprobe`: the program that was installed beside this."""
import importlib.metadata, os, sys

files = importlib.metadata.files("gpuprobe")
program = next(str(file.locate()) for file in files if file.name == "gpuprobe")
os.execv(program, [program, *sys.argv[1:]])
'''
content = {
    "gpuprobe/__main__.py": main.encode(),
    f"{name}.data/scripts/gpuprobe": Path(files, "usr/bin/gpuprobe").read_bytes(),
    f"{name}.dist-info/METADATA": metadata.encode() + Path("README.md").read_bytes(),
    f"{name}.dist-info/WHEEL": f"Wheel-Version: 1.0\nGenerator: gpuprobe\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    f"{name}.dist-info/licenses/LICENSE": Path(files, "usr/share/doc/gpuprobe/copyright").read_bytes(),
}
digest = lambda data: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
record = [f"{path},sha256={digest(data)},{len(data)}\n" for path, data in content.items()]
content[f"{name}.dist-info/RECORD"] = "".join([*record, f"{name}.dist-info/RECORD,,\n"]).encode()
with zipfile.ZipFile(f"{out}/{name}-{tag}.whl", "w") as wheel:
    for path, data in content.items():
        info = zipfile.ZipInfo(path, time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6])
        info.external_attr = (0o100755 if "scripts" in path else 0o100644) << 16
        wheel.writestr(info, data, zipfile.ZIP_DEFLATED, 9)
EOF
}

# The program, the libraries that it is linked with, and certificates of authorities; without a shell.
make_image() {
    local debian=$roots/trixie image=$work/image library layer
    bootstrap_root trixie "$debian" "${DEBIAN_MIRROR:-}" sid --include=ca-certificates,ubuntu-keyring ||
        die "debootstrap failed: $(tail -n 1 "$debian.log")"
    rm -rf "$image"
    install -D "$program" "$image/layer/usr/bin/gpuprobe"
    objdump -p "$program" | awk '$1 == "NEEDED" { print $2 }' | while read -r library; do
        install -D -m 755 "$debian/$libraries/$library" "$image/layer/$libraries/$library"
    done
    ln -s usr/lib "$image/layer/lib"
    ln -s "$libraries" "$image/layer/lib64"
    install -D -m 644 "$debian/etc/ssl/certs/ca-certificates.crt" -t "$image/layer/etc/ssl/certs"
    mkdir -m 1777 "$image/layer/tmp"
    mkdir "$image/layer/proc" "$image/layer/sys" "$image/files"
    archive "$image/layer" >"$image/files/layer.tar"
    layer=$(sha256sum <"$image/files/layer.tar" | cut -d' ' -f1)
    gzip -9 -n "$image/files/layer.tar"
    # The driver's libnvidia-ml.so is mounted into the container, where the runtime is NVIDIA's.
    cat >"$image/files/config.json" <<EOF
{"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]}, "config": {
 "Entrypoint": ["/usr/bin/gpuprobe"], "Cmd": ["serve"], "ExposedPorts": {"9477/tcp": {}},
 "Env": ["PATH=/usr/bin", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"]}}
EOF
    echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"gpuprobe:$version\"], \"Layers\": [\"layer.tar.gz\"]}]" \
        >"$image/files/manifest.json"
    archive "$image/files" --transform 's,^\./,,' >"$out/gpuprobe-$version-image.tar"
}

ensure_build_packages
ensure_packages binutils python3 rpm
ensure_cargo
as_builder mkdir -p "$work"
make_compiler
build_program
check_program
add_documents
for kind in tar deb rpm wheel image; do
    "make_$kind"
done
(cd "$out" && sha256sum -- * >SHA256SUMS)
say "made in $out:"
ls -l "$out"

if [[ ${1-} == --twice ]]; then
    # The length differs, too, so that a path that is padded out does not hide.
    copy=$work/somewhere-else/gpuprobe
    rm -rf "$copy"
    as_builder mkdir -p "$copy"
    git ls-files -z | tar --null --files-from=- --create | as_builder tar --extract --directory "$copy"
    ROOTS=$roots "$copy/scripts/release.sh" | sed 's/^/    /'
    diff "$out/SHA256SUMS" "$copy/target/package/out/SHA256SUMS" || die "the two builds differ"
    say "the two builds are the same"
fi
