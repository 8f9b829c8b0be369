// A library with the function FUNCTION, which allocates by ALLOCATE: of CUDA, or of another
// library; with STREAM_ORDERED, by a function that takes a stream.

#include <stddef.h>

#ifdef STREAM_ORDERED
extern int ALLOCATE(void **pointer, size_t size, void *stream);
#define CALL(pointer, size) ALLOCATE(pointer, size, NULL)
#else
extern int ALLOCATE(void **pointer, size_t size);
#define CALL(pointer, size) ALLOCATE(pointer, size)
#endif

int FUNCTION(void **pointer, size_t size)
{
    int result = CALL(pointer, size);
    // Prevents a tail call: the frame has to be on the stack meanwhile.
    __asm__ volatile("");
    return result;
}
