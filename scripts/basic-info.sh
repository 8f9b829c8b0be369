#!/usr/bin/env bash
# Prints the environment block of a report: the machine that its figures were measured on.
#
#     scripts/basic-info.sh
#
# Unknown values are printed as unknown or none; it never fails.
set -uo pipefail

case ${1:-} in
'') ;;
-h | --help)
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
*)
    printf 'basic-info.sh: %s: it takes no arguments\n' "$1" >&2
    exit 2
    ;;
esac

# line NAME VALUE
line() {
    printf '%-14s%s\n' "$1:" "${2:-unknown}"
}

# first_of FILE KEY: the text after "KEY :" in the first such line.
first_of() {
    sed -n "s/^$2[[:space:]]*:[[:space:]]*//p" "$1" 2>/dev/null | head -n 1
}

distribution() {
    # shellcheck source=/dev/null # not of this repository
    (. /etc/os-release 2>/dev/null && printf '%s' "${PRETTY_NAME:-}")
}

cpu() {
    local model
    model=$(first_of /proc/cpuinfo 'model name')
    printf '%s, %s online' "${model:-$(uname -m)}" "$(nproc 2>/dev/null || echo '?')"
}

memory() {
    awk '/^MemTotal:/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo 2>/dev/null
}

virtualisation() {
    local what
    what=$(systemd-detect-virt 2>/dev/null) || true
    if [[ -n $what ]]; then
        printf '%s' "$what"
    elif grep -q '^flags.*\bhypervisor\b' /proc/cpuinfo 2>/dev/null; then
        printf 'a virtual machine'
    else
        printf 'none seen'
    fi
}

# smi FIELDS: one line a GPU; nothing where there is no GPU or no driver. A driver
# that hangs must not hang the report.
smi() {
    timeout 20 nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null
}

gpus() {
    smi name,memory.total | sort | uniq -c | sed 's/^ *\([0-9]*\) \(.*\)$/\1 x \2/' | paste -sd';' | sed 's/;/; /g'
}

driver() {
    local version
    version=$(smi driver_version | head -n 1)
    [[ -n $version ]] ||
        version=$(sed -n 's/^NVRM version:.*[^0-9.]\([0-9][0-9]*\.[0-9.]*\) .*/\1/p' \
            /proc/driver/nvidia/version 2>/dev/null | head -n 1)
    printf '%s' "${version:-none}"
}

cuda() {
    timeout 20 nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: \([0-9.]*\).*/\1/p' | head -n 1
}

line Date "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
line Kernel "$(uname -sr) $(uname -m)"
line Distribution "$(distribution)"
line CPU "$(cpu)"
line Virtualised "$(virtualisation)"
line Memory "$(memory)"
gpu=$(gpus)
line GPU "${gpu:-none}"
line Driver "$(driver)"
cuda=$(cuda)
line CUDA "${cuda:-none}"
