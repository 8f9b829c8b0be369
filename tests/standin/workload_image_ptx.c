/*
 * The images of modules for the real driver: PTX, which it compiles for the GPU that is there. The
 * kernels take no arguments and do nothing, or nothing for a while.
 */
#include "workload_image.h"

#include <stdint.h>
#include <string.h>

#define PTX_HEADER ".version 6.4\n.target sm_75\n.address_size 64\n"
#define PTX_KERNEL(name) ".visible .entry " name "() { ret; }\n"
/* Of 50 milliseconds. */
#define PTX_BUSY(name)                                                                          \
    ".visible .entry " name "() {\n"                                                            \
    ".reg .u64 %end, %now;\n.reg .pred %early;\n"                                               \
    "mov.u64 %now, %globaltimer;\nadd.u64 %end, %now, 50000000;\n"                              \
    "again: mov.u64 %now, %globaltimer;\nsetp.lt.u64 %early, %now, %end;\n@%early bra again;\n" \
    "ret;\n}\n"
#define PTX_VARIABLE(name, bytes) ".visible .global .align 8 .b8 " name "[" bytes "];\n"

#define TEXT_OF(number) #number
#define NUMBER(number) TEXT_OF(number)

#define BUILTIN_PTX                                                                               \
    PTX_HEADER PTX_KERNEL(VEC_ADD) PTX_KERNEL(ELEMENTWISE) PTX_KERNEL(GEMM) PTX_KERNEL(FUSED_ADD) \
        PTX_VARIABLE(COUNTER, NUMBER(COUNTER_BYTES)) PTX_VARIABLE(TABLE, NUMBER(TABLE_BYTES))

#define PADDED(bytes) (((bytes) + 7) / 8 * 8)

/*
 * A fat binary with one PTX, as the toolkit's `fatbinary` makes it: __cudaRegisterFatBinary takes
 * nothing less, and cuModuleLoadData takes it too. The table is not a managed variable here: those
 * are registered by another function.
 */
struct fat_binary {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* after this header */
    struct {
        uint16_t kind, version;
        uint32_t header_bytes;
        uint64_t bytes;
        uint32_t compressed_bytes, options_offset;
        uint16_t ptx_minor, ptx_major;
        uint32_t architecture, name_offset, name_bytes;
        uint64_t flags, reserved, uncompressed_bytes;
        uint64_t options[2];
    } ptx;
    char text[PADDED(sizeof BUILTIN_PTX)];
};

_Static_assert(offsetof(struct fat_binary, text) == 16 + 80, "struct fat_binary");

extern const struct fat_binary fat_binary __asm__("builtin_image");
const struct fat_binary fat_binary = {
    .magic = 0xba55ed50,
    .version = 1,
    .header_bytes = 16,
    .bytes = sizeof(struct fat_binary) - 16,
    .ptx = { .kind = 1,
             .version = 0x0101,
             .header_bytes = 80,
             .bytes = PADDED(sizeof BUILTIN_PTX),
             .options_offset = 64,
             .ptx_major = 6,
             .ptx_minor = 4,
             .architecture = 75,
             .flags = 0x11, /* 64 bits, Linux */
             .options = { 72 } },
    .text = BUILTIN_PTX,
};

void image_begin(FILE *image)
{
    fputs(PTX_HEADER, image);
}

void image_add_kernel(FILE *image, const char *name)
{
    if (!strcmp(name, "busy_50ms"))
        fputs(PTX_BUSY("busy_50ms"), image);
    else
        fprintf(image, PTX_KERNEL("%s"), name);
}

void image_add_variable(FILE *image, const char *name, size_t bytes, bool managed)
{
    fprintf(image, ".visible .global %s .align 8 .b8 %s[%zu];\n",
            managed ? ".attribute(.managed)" : "", name, bytes);
}
