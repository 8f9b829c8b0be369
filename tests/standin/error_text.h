/* Texts of the error codes that the stand-ins use, shared by the driver and
 * the runtime, whose numbers agree. */
#ifndef STANDIN_ERROR_TEXT_H
#define STANDIN_ERROR_TEXT_H

#include <stddef.h>

/* The text of `code`, or NULL for a code that is not in the table. */
static inline const char *error_text(int code)
{
    static const struct {
        int code;
        const char *text;
    } texts[] = {
        { 0, "no error" },
        { 1, "invalid argument" },
        { 2, "out of memory" },
        { 3, "initialization error" },
        { 35, "CUDA driver version is insufficient for CUDA runtime version" },
        { 100, "no CUDA-capable device is detected" },
        { 98, "invalid device function" },
        { 101, "invalid device ordinal" },
        { 200, "device kernel image is invalid" },
        { 201, "invalid device context" },
        { 400, "invalid resource handle" },
        { 401, "the operation cannot be performed in the present state" },
        { 500, "named symbol not found" },
        { 700, "an illegal memory access was encountered" },
        { 709, "context is destroyed" },
        { 712, "part or all of the requested memory range is already mapped" },
        { 713, "pointer does not correspond to a registered memory region" },
        { 719, "unspecified launch failure" },
        { 801, "operation not supported" },
        { 900, "operation not permitted when stream is capturing" },
        { 902, "merging captures is not permitted" },
        { 903, "the capture was not initiated in this stream" },
        { 908, "attempt to terminate a thread-local capture sequence from another thread" },
        { 999, "unknown error" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code)
            return texts[i].text;
    return NULL;
}

#endif
