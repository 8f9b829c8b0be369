# How to unwind call_it, in 16 MB: it begins with that many instructions to do nothing.
        .section .eh_frame,"a",@progbits
.Lcie:
        .long .Lcie_end - .Lcie_id
.Lcie_id:
        .long 0
        .byte 1
        .string "zR"
        .uleb128 1
        .sleb128 -8
        .uleb128 16
        .uleb128 1
        .byte 0x1b                      # addresses are relative, of 32 bits
        .byte 0x0c                      # the CFA is sp + 8
        .uleb128 7, 8
        .byte 0x90, 1                   # the return address is at the CFA - 8
        .balign 8, 0
.Lcie_end:
        .long .Lfde_end - .Lfde_id
.Lfde_id:
        .long .Lfde_id - .Lcie
        .long call_it - .
        .long 64
        .uleb128 0
        .fill 16 << 20, 1, 0
        .balign 8, 0
.Lfde_end:
        .section .note.GNU-stack,"",@progbits
