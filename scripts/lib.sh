# shellcheck shell=bash
# Functions shared by the scripts. Sourcing it only determines its location and the building user.
#
# Privileges: BPF and installing packages need root, so a script that uses this
# calls become_root first. Where sudo says who asked for it, that user does the
# building (as_builder), so that nothing of theirs ends up owned by root.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() {
    printf '==> %s\n' "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# ---- who runs, who builds ---------------------------------------------------

# become_root SCRIPT ARGUMENT...: restarts the script through sudo unless it runs as root. sudo
# clears the environment; variables that the tools here read are passed on. CI cannot answer a
# password prompt.
become_root() {
    if [[ $EUID -eq 0 ]]; then
        return
    fi
    have sudo || die "needs root: eBPF programs cannot be loaded without it, and there is no sudo"
    local name keep=("PATH=$PATH:/usr/sbin:/sbin") prompt=()
    for name in CI CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN CUDA_HOME LD_LIBRARY_PATH \
        http_proxy https_proxy no_proxy; do
        if [[ -n ${!name:-} ]]; then
            keep+=("$name=${!name}")
        fi
    done
    if [[ -n ${CI:-} ]]; then
        prompt=(-n)
    fi
    exec sudo "${prompt[@]}" -- env "${keep[@]}" "$@"
}

# The user that sudo acts for, if the working tree is theirs; otherwise nobody,
# and root builds.
builder=
builder_home=$HOME
builder_prefix=() # before a command, makes it the builder's
if [[ $EUID -eq 0 && -n ${SUDO_USER:-} && $SUDO_USER != root &&
    $(stat -c %U "$root") == "$SUDO_USER" ]]; then
    builder=$SUDO_USER
    builder_home=$(getent passwd "$builder" | cut -d: -f6)
    builder_prefix=(setpriv "--reuid=$(id -u "$builder")" "--regid=$(id -g "$builder")"
        --init-groups env "HOME=$builder_home" "USER=$builder" "LOGNAME=$builder")
    # Where root runs cargo, it is the builder's, with their toolchain.
    export CARGO_HOME=${CARGO_HOME:-$builder_home/.cargo}
    export RUSTUP_HOME=${RUSTUP_HOME:-$builder_home/.rustup}
fi

# as_builder COMMAND...
as_builder() {
    "${builder_prefix[@]}" "$@"
}

# What root has written below target/ goes back to the builder.
return_target() {
    if [[ -n $builder && -d $root/target ]]; then
        chown -R "$builder": "$root/target"
    fi
}

# ---- packages ---------------------------------------------------------------

# Does this machine have the tool or library of the Debian package? One that was installed some
# other way is as good.
have_package() {
    case $1 in
    ca-certificates) [[ -e /etc/ssl/certs/ca-certificates.crt ]] ;;
    gcc) have cc ;;
    g++) have c++ ;;
    binutils) have objcopy ;;
    libc6-dev) [[ -e /usr/include/stdio.h ]] ;;
    nodejs) have node ;;
    libelf-dev) [[ -e /usr/include/libelf.h ]] ;;
    zlib1g-dev) [[ -e /usr/include/zlib.h ]] ;;
    perl-base) have perl ;;
    rpm) have rpmbuild ;;
    qemu-system-x86) have qemu-system-x86_64 ;;
    *) have "$1" ;;
    esac
}

# install_packages PACKAGE...: without a prompt, and without removing any package.
install_packages() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends --no-remove \
        -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 install "$@" </dev/null >/dev/null
}

# ensure_packages PACKAGE...: installs those that are missing.
ensure_packages() {
    local package missing=()
    for package in "$@"; do
        have_package "$package" || missing+=("$package")
    done
    if [[ ${#missing[@]} -eq 0 ]]; then
        return
    fi
    have apt-get ||
        die "missing: ${missing[*]} (Debian's names). Install them; this script knows apt-get only"
    say "installing ${missing[*]}"
    apt-get -qq update </dev/null >/dev/null || say "apt-get update failed; trying with the lists as they are"
    install_packages "${missing[@]}" || die "apt-get could not install ${missing[*]}"
}

# Packages to build gpuprobe and its stand-in libraries. libelf and zlib are for libbpf; perl is for
# check_bpf; g++ builds programs for the tests of stacks.
ensure_build_packages() {
    ensure_packages clang gcc g++ libc6-dev make pkg-config libelf-dev zlib1g-dev git \
        ca-certificates perl-base
}

# bootstrap_root SUITE FOLDER MIRROR SCRIPT [OPTION...]: the smallest root file system, by debootstrap, unless it is there.
# SCRIPT is sid for Debian, gutsy for Ubuntu: a debootstrap that is older than the suite has none for it.
bootstrap_root() {
    [[ ! -e $2/var/lib/dpkg/status || -e $2/debootstrap ]] || return 0
    ensure_packages debootstrap
    say "fetching $1 into $2"
    rm -rf "$2"
    mkdir -p "$2"
    debootstrap --variant=minbase "${@:5}" "$1" "$2" "$3" "/usr/share/debootstrap/scripts/$4" >"$2.log" 2>&1
}

# ---- Rust -------------------------------------------------------------------

rust_version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml")

# Is there a cargo on the PATH that is new enough for the crate?
cargo_is_new_enough() {
    local version
    version=$(cd "$root" && as_builder cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
    [[ -n $version ]] &&
        printf '%s\n' "$rust_version" "${version%%-*}" | sort --version-sort --check=quiet
}

# Puts the directories where rustup installs on the PATH: the builder's, and those of the user that
# sudo acts for, whose toolchains root must be told of.
find_cargo() {
    local home
    for home in "${CARGO_HOME:-$builder_home/.cargo}" "$builder_home/.cargo"; do
        if [[ -x $home/bin/cargo || -x $home/bin/rustup ]]; then
            PATH=$home/bin:$PATH
            return
        fi
    done
    if [[ -z $builder && -n ${SUDO_USER:-} ]]; then
        home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
        if [[ -x $home/.cargo/bin/cargo && -d $home/.rustup ]]; then
            PATH=$home/.cargo/bin:$PATH
            export RUSTUP_HOME=${RUSTUP_HOME:-$home/.rustup}
        fi
    fi
}

# Gets rustup from the distribution, or, where that has none (Debian 12), from
# the Rust project as its own instructions say.
install_rustup() {
    have apt-get || return 1
    apt-get -qq update </dev/null >/dev/null || true
    say "installing rustup"
    if [[ -n $(apt-cache madison rustup) ]]; then
        install_packages rustup
        return
    fi
    have curl || install_packages curl || return 1
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
        as_builder sh -s -- -y --no-modify-path --default-toolchain none >&2 || return 1
    find_cargo
}

# Gets the stable toolchain by rustup.
install_rust() {
    have rustup || install_rustup || return 1
    say "installing the stable Rust toolchain"
    as_builder rustup toolchain install stable --profile default --no-self-update \
        </dev/null >&2 || return 1
    # Not made the default: the default toolchain of the machine stays.
    export RUSTUP_TOOLCHAIN=stable
}

# Leaves a cargo on the PATH that can build the crate.
ensure_cargo() {
    cargo_is_new_enough && return
    find_cargo
    cargo_is_new_enough && return
    install_rust && cargo_is_new_enough && return
    die "needs cargo $rust_version or newer, and rustup could not bring it:" \
        "install Rust as www.rust-lang.org/tools/install says, then run this again"
}

# ensure_rust_components COMPONENT...: cargo subcommands that a small toolchain lacks.
ensure_rust_components() {
    local component
    for component in "$@"; do
        if ! as_builder cargo "${component#rust}" --version >/dev/null 2>&1; then
            say "installing $component"
            as_builder rustup component add "$component" </dev/null >&2 ||
                die "needs $component beside $(as_builder cargo --version)"
        fi
    done
}

# ---- BPF --------------------------------------------------------------------

# Loads the smallest tracing program, "return 0", and prints why the kernel refuses it. The 5 is
# BPF_PROG_LOAD, the first 2 BPF_PROG_TYPE_KPROBE.
# shellcheck disable=SC2016 # Perl's variables
load_bpf_program='
    my %number = (x86_64 => 321, aarch64 => 280);
    my $syscall = $number{$ARGV[0]} or print "no gpuprobe for $ARGV[0]\n" and exit 1;
    my ($code, $license) = (pack("CCsl CCsl", 0xb7, 0, 0, 0, 0x95, 0, 0, 0), "GPL\0");
    my $attributes = pack("LLPPLLQLL", 2, 2, $code, $license, 0, 0, 0, 0, 0);
    syscall($syscall, 5, $attributes, length $attributes) >= 0 or print "$!\n" and exit 1;
'

# Prints nothing and succeeds where BPF can be used; otherwise one line says why not and what to do.
check_bpf() {
    local reason
    if [[ ! -r /sys/kernel/btf/vmlinux ]]; then
        printf 'BPF cannot be used here: no /sys/kernel/btf/vmlinux; %s\n' \
            "a kernel with CONFIG_DEBUG_INFO_BTF is needed, and /sys must be mounted"
        return 1
    fi
    if ! reason=$(perl -e "$load_bpf_program" "$(uname -m)" 2>&1); then
        printf 'BPF cannot be used here: the kernel refused a program (%s); %s\n' "$reason" \
            "run as root with CAP_BPF and CAP_PERFMON, in a container with --privileged"
        return 1
    fi
}

# ---- CUDA -------------------------------------------------------------------

find_nvcc() {
    local toolkit=${CUDA_HOME:-/usr/local/cuda}
    command -v nvcc && return
    [[ -x $toolkit/bin/nvcc ]] && printf '%s\n' "$toolkit/bin/nvcc"
}

# find_cuda_libraries NVCC: the directory of the libcudart.so that belongs to it.
find_cuda_libraries() {
    local toolkit directory
    toolkit=$(dirname "$(dirname "$(readlink -f "$1")")")
    for directory in "$toolkit"/lib64 "$toolkit"/targets/*/lib "$toolkit"/lib; do
        if [[ -e $directory/libcudart.so ]]; then
            printf '%s\n' "$directory"
            return
        fi
    done
    return 1
}

# ensure_cargo_tool NAME: installs cargo-NAME if it is not there (some minutes).
ensure_cargo_tool() {
    ensure_cargo
    find_cargo
    if ! cargo "$1" --version >/dev/null 2>&1; then
        say "installing cargo-$1"
        cargo install --locked "cargo-$1"
    fi
}

# run_on_standin SCRIPT [OPTION...]: builds gpuprobe and the stand-in libraries, runs the
# Python script, and ends with its status. A signal ends it and what it has started.
run_on_standin() {
    local script=$1 status=0
    shift
    standin_job=
    # shellcheck disable=SC2317 # called by the trap
    end_standin_job() {
        if [[ -n $standin_job ]]; then
            kill "$standin_job" 2>/dev/null || true
            wait "$standin_job" 2>/dev/null || true
        fi
        return_target
    }
    trap end_standin_job EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM

    ensure_build_packages
    ensure_packages python3
    ensure_cargo
    as_builder cargo build --locked --release
    as_builder make -s -C tests/standin "OUT=$root/target/standin"
    python3 -B "$script" "$@" &
    standin_job=$!
    wait "$standin_job" || status=$?
    standin_job=
    exit "$status"
}
