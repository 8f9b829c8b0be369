/* The images of modules for the stand-in driver; see cuda_abi.h. */
#include "workload_image.h"

#include "cuda_abi.h"
#include "workload_backend.h"

#define TEXT_OF(number) #number
#define NUMBER(number) TEXT_OF(number)

const char builtin_image[] =
    STANDIN_IMAGE_MAGIC VEC_ADD "\n" ELEMENTWISE "\n" GEMM "\n" FUSED_ADD "\n" COUNTER
                                "=" NUMBER(COUNTER_BYTES) "\n" TABLE "=m" NUMBER(TABLE_BYTES) "\n";

void image_begin(FILE *image)
{
    fputs(STANDIN_IMAGE_MAGIC, image);
}

void image_add_kernel(FILE *image, const char *name)
{
    fprintf(image, "%s\n", name);
}

void image_add_variable(FILE *image, const char *name, size_t bytes, bool managed)
{
    fprintf(image, "%s=%s%zu\n", name, managed ? "m" : "", bytes);
}
