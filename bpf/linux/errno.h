/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The errors that libbpf's usdt.bpf.h names: the header of this name needs those of a machine. */
#ifndef GPUPROBE_ERRNO_H
#define GPUPROBE_ERRNO_H

#define ENOENT 2
#define ESRCH 3
#define EINVAL 22

#endif /* GPUPROBE_ERRNO_H */
