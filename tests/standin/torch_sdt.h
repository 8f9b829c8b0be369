/*
 * A USDT probe of provider `pytorch`: a nop, and a note that says where it is and
 * where its arguments are. The note's form is that of SystemTap's <sys/sdt.h>,
 * which PyTorch writes too: owner "stapsdt", type 3, the addresses of the nop, of
 * the link-time base (none here) and of the semaphore, then three strings.
 *
 * The semaphore counts the tracers that listen; the kernel keeps it. A program
 * reaches the nop only while it is not 0.
 */
#ifndef STANDIN_TORCH_SDT_H
#define STANDIN_TORCH_SDT_H

#define SDT_SEMAPHORE(name) torch_sdt_semaphore_pytorch_##name

#define SDT_DEFINE_SEMAPHORE(name) \
    volatile unsigned short SDT_SEMAPHORE(name) __attribute__((section(".probes"), used))

#define SDT_IS_ENABLED(name) (SDT_SEMAPHORE(name) != 0)

/* `arguments` is like "-8@%[pointer]", BYTES@WHERE of each (negative: signed),
 * with the names of the operands that follow. */
#define SDT_PROBE(name, arguments, ...)                               \
    __asm__ volatile("1: nop\n"                                       \
                     ".pushsection .note.stapsdt, \"\", @note\n"      \
                     ".balign 4\n"                                    \
                     ".4byte 3f - 2f, 5f - 4f, 3\n"                   \
                     "2: .asciz \"stapsdt\"\n"                        \
                     "3: .balign 4\n"                                 \
                     "4: .8byte 1b\n"                                 \
                     ".8byte 0\n"                                     \
                     ".8byte torch_sdt_semaphore_pytorch_" #name "\n" \
                     ".asciz \"pytorch\"\n"                           \
                     ".asciz \"" #name "\"\n"                         \
                     ".asciz \"" arguments "\"\n"                     \
                     "5: .balign 4\n"                                 \
                     ".popsection"                                    \
                     :                                                \
                     : __VA_ARGS__)

#endif
