#!/usr/bin/env bash
# Runs a test binary so that it prints the time of each test: cargo's runner in test.sh and test-long.sh.
#
# libtest has that behind a switch for unstable options. Tests with a main of their own know neither that nor filters.
case ${1##*/} in
confined-*) exec "$1" ;;
*) RUSTC_BOOTSTRAP=1 exec "$@" -Zunstable-options --report-time ;;
esac
