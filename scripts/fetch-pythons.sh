#!/usr/bin/env bash
# Puts CPythons of several of Debian's releases side by side, for the tests of Python frames: none
# is installed, and nothing of this system is changed.
#
#     scripts/fetch-pythons.sh [FOLDER]
#
# FOLDER (target/pythons, where the tests look) gets a folder for each version with bin/python3; what
# is there already stays. Packages come from the mirror that apt-get is set up with, checked by apt as
# always, and are unpacked only. Each interpreter has its release's C library beside it, which its
# program header names from then on: apart from that it is Debian's file.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Version and the release that has it.
pythons=("3.11 bookworm" "3.13 trixie" "3.14 sid")
# Packages that they need beside the interpreter and its library.
libraries=(libc6 libffi8 libexpat1 zlib1g)

case ${1:-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
folder=$(realpath -m "${1:-$root/target/pythons}")
have apt-get || die "this script knows apt-get only"
[[ $(uname -m) == x86_64 ]] || die "this script knows x86-64 only"

# The mirror of Debian that this system is set up with.
mirror() {
    find /etc/apt/sources.list /etc/apt/sources.list.d -type f -exec \
        sed -sn 's/^URIs: *//p; s/^deb \(\[[^]]*\] *\)\{0,1\}\([^ ]*\) .*/\2/p' {} + 2>/dev/null |
        tr ' ' '\n' | grep -m 1 '/debian/*$'
}

# apt of one release, with lists of its own: of_release RELEASE apt-get|apt-cache ARGUMENT...
of_release() {
    local release=$1 tool=$2 own=$work/$1
    shift 2
    "$tool" -qq -o "Dir::Etc::SourceList=$own/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$own/lists" -o "Dir::Cache=$own/cache" \
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o APT::Sandbox::User=root "$@"
}

# unpack RELEASE INTO PACKAGE...
unpack() {
    local release=$1 into=$2 package
    shift 2
    mkdir -p "$work/$release/packages" "$into"
    (cd "$work/$release/packages" && of_release "$release" apt-get download "$@")
    for package in "$work/$release/packages"/*.deb; do
        dpkg -x "$package" "$into"
    done
    rm "$work/$release/packages"/*.deb
}

# Makes the interpreter run with the C library beside it: use_own_library FOLDER PROGRAM
use_own_library() {
    local folder=${1:?} loader own
    own=$folder/usr/lib/x86_64-linux-gnu
    # Before Debian 13 some libraries were not below usr.
    if [[ -d $folder/lib && ! -L $folder/lib ]]; then
        cp -a "$folder/lib/." "$folder/usr/lib/"
        rm -r "${folder:?}/lib"
    fi
    loader=$(echo "$own"/ld-linux-x86-64.so.*)
    "$work/patchelf/usr/bin/patchelf" --set-interpreter "$loader" \
        --force-rpath --set-rpath "$own" "$2"
}

# fetch VERSION RELEASE
fetch() {
    local version=$1 release=$2 new=$work/new-$1 program
    mkdir -p "$work/$release/lists/partial" "$work/$release/cache/archives/partial"
    printf 'deb %s %s main\n' "$debian" "$release" >"$work/$release/sources.list"
    of_release "$release" apt-get update ||
        die "cannot read the list of $release's packages: see above; is there a network?"
    unpack "$release" "$new" "python$version-minimal" "libpython$version-minimal" \
        "libpython$version-stdlib" "${libraries[@]}"
    # Paths in it are those of its final place.
    mv "$new" "$folder/$version"
    program=$folder/$version/usr/bin/python$version
    use_own_library "$folder/$version" "$program"
    mkdir "$folder/$version/bin"
    ln -s "../usr/bin/python$version" "$folder/$version/bin/python3"
    "$program" -c "import asyncio, ctypes" || {
        rm -r "${folder:?}/$version"
        die "python$version of $release does not run here"
    }
}

mkdir -p "$folder"
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
debian=$(mirror) || true # one of the places is not there
[[ -n $debian ]] || die "apt is set up with no mirror of Debian"
for python in "${pythons[@]}"; do
    read -r version release <<<"$python"
    if [[ ! -x $folder/$version/bin/python3 ]]; then
        say "fetching CPython $version of $release"
        if [[ ! -x $work/patchelf/usr/bin/patchelf ]]; then
            (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download patchelf &&
                dpkg -x patchelf_*.deb patchelf)
        fi
        fetch "$version" "$release"
    fi
    say "$("$folder/$version/bin/python3" -VV | tr '\n' ' ')in $folder/$version"
done
