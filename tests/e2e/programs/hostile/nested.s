# Debugging information of call_it, in which functions are inlined into each other 250,000 deep.
        .section .debug_abbrev,"",@progbits
.Labbrev:
        .uleb128 1                      # a unit, with children
        .uleb128 0x11
        .byte 1
        .uleb128 0x03, 0x08             # name, string
        .uleb128 0x11, 0x01             # low_pc, address
        .uleb128 0x12, 0x07             # high_pc, size
        .byte 0, 0
        .uleb128 2                      # a function, with children
        .uleb128 0x2e
        .byte 1
        .uleb128 0x03, 0x08
        .uleb128 0x11, 0x01
        .uleb128 0x12, 0x07
        .byte 0, 0
        .uleb128 3                      # what is inlined, with children
        .uleb128 0x1d
        .byte 1
        .byte 0, 0
        .byte 0

        .section .debug_info,"",@progbits
.Linfo:
        .long .Lend - .Lversion
.Lversion:
        .value 4
        .long .Labbrev
        .byte 8
        .uleb128 1
        .string "nested.c"
        .quad call_it
        .quad call_it_end - call_it
        .uleb128 2
        .string "call_it"
        .quad call_it
        .quad call_it_end - call_it
        .fill 250000, 1, 3
        .fill 250000, 1, 0
        .byte 0, 0
.Lend:
        .section .note.GNU-stack,"",@progbits
