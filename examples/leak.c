/* Works on frames for some seconds, and loses the memory of every tenth one. */
#include <stdlib.h>
#include <unistd.h>

int cudaMalloc(void **memory, size_t bytes); /* as in cuda_runtime.h */
int cudaFree(void *memory);

static void work_on_frame(int number)
{
    void *frame;
    cudaMalloc(&frame, 8 << 20);
    usleep(20000);
    if (number % 10 == 0)
        return; /* the bug: the frame is not freed */
    cudaFree(frame);
}

int main(int count, char **words)
{
    int frames = count > 1 ? atoi(words[1]) : 100;
    for (int number = 1; number <= frames; number++)
        work_on_frame(number);
    return 0;
}
