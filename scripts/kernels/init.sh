#!/bin/busybox sh
# shellcheck shell=sh
# The first process of the emulated machine that scripts/test-kernels.sh starts. Its standard output
# is the first serial line, where the kernel writes too; the second has the test output, the third
# the exit status.

export PATH=/bin HOME=/root TMPDIR=/tmp RUST_BACKTRACE=0 TERM=dumb
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/pts /dev/shm
ln -s /proc/self/fd /dev/fd
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
for line in /dev/ttyS1 /dev/ttyS2; do
    stty -F "$line" raw -echo
done
sh /tests.sh </dev/null >/dev/ttyS1 2>&1
echo $? >/dev/ttyS2
poweroff -f
