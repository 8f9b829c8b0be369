/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Error numbers used by libbpf's usdt.bpf.h: the system's header of this name needs
 * architecture-specific headers. */
#ifndef GPUPROBE_ERRNO_H
#define GPUPROBE_ERRNO_H

#define ENOENT 2
#define ESRCH 3
#define EINVAL 22

#endif /* GPUPROBE_ERRNO_H */
