# Debugging information of call_it, in which functions are inlined into each other 250,000 deep.
        .section .debug_abbrev,"",@progbits
.Labbrev:
        .uleb128 1                      # a unit, with children
        .uleb128 0x11
        .byte 1
        .uleb128 0x03, 0x08             # name, string
        .uleb128 0x11, 0x01             # low_pc, address
        .uleb128 0x12, 0x07             # high_pc, size
        .uleb128 0x10, 0x17             # stmt_list, offset
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
        .quad 64
        .long .Lline
        .uleb128 2
        .string "call_it"
        .quad call_it
        .quad 64
        .fill 250000, 1, 3
        .fill 250000, 1, 0
        .byte 0, 0
.Lend:
        .section .debug_line,"",@progbits
.Lline:
        .long .Lline_end - .Lline_version
.Lline_version:
        .value 4
        .long .Lprogram - .Lheader
.Lheader:
        .byte 1, 1, 1, -5, 14, 13
        .byte 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1
        .byte 0                         # no folders
        .string "nested.c"
        .byte 0, 0, 0
        .byte 0
.Lprogram:
        .byte 0, 9, 2                   # set_address
        .quad call_it
        .byte 1                         # copy
        .byte 2, 64                     # advance_pc
        .byte 0, 1, 1                   # end_sequence
.Lline_end:

        .section .note.GNU-stack,"",@progbits
