#!/usr/bin/env bash
# Checks what gpuprobe depends on: licences, sources, bans and known weaknesses.
#
#     scripts/audit.sh [--offline]
#
# Installs cargo-deny if it is missing (some minutes). The allowed licences, sources and bans are in
# deny.toml. Advisories come from github.com/rustsec/advisory-db; with --offline, that check is
# skipped, with a message.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

offline=
case ${1:-} in
    '') ;;
    --offline) offline=1 ;;
    *) die "usage: scripts/audit.sh [--offline]" ;;
esac

ensure_cargo_tool deny

status=0
for manifest in Cargo.toml fuzz/Cargo.toml; do
    say "$manifest: licences, bans, sources"
    cargo deny --manifest-path "$manifest" --config "$root/deny.toml" \
        check --hide-inclusion-graph licenses bans sources || status=1
    if [[ -n $offline ]]; then
        say "$manifest: NOT checked for known weaknesses (--offline)"
    else
        say "$manifest: known weaknesses"
        cargo deny --manifest-path "$manifest" --config "$root/deny.toml" check advisories ||
            status=1
    fi
done
exit "$status"
