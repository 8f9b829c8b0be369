// Allocates itself and through libraries; the arguments are the numbers of bytes, in this order.

#include <stddef.h>
#include <stdlib.h>

extern int cudaMalloc(void **pointer, size_t size);
extern int nccl_allocates(void **pointer, size_t size);
extern int blas_allocates(void **pointer, size_t size);
extern int torch_allocates(void **pointer, size_t size);

int main(int count, char **words)
{
    int (*functions[])(void **, size_t) = { cudaMalloc, nccl_allocates, blas_allocates,
                                            torch_allocates };
    for (int i = 0; i + 1 < count && i < 4; i++) {
        void *pointer;
        if (functions[i](&pointer, strtoull(words[i + 1], NULL, 10)) != 0)
            return 1;
    }
    return 0;
}
