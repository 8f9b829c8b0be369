/* Stand-in runtime: the variables of a program, and of its libraries. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "cudart_internal.h"

struct host_variable {
    struct host_variable *next;
    const void *address; /* that the program names it by */
    const char *name;
    void **binary; /* the handle of its fat binary */
};

static struct host_variable *host_variables; /* under `lock` */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void __cudaRegisterVar(void **handle, char *host_variable, char *device_address,
                       const char *device_name, int external, size_t bytes, int constant,
                       int global)
{
    (void)device_address, (void)external, (void)bytes, (void)constant, (void)global;
    struct host_variable *variable = malloc(sizeof *variable);
    if (!variable) {
        fputs("stand-in CUDA: no host memory for a variable\n", stderr);
        abort();
    }
    variable->address = host_variable;
    variable->name = device_name;
    variable->binary = handle;
    pthread_mutex_lock(&lock);
    variable->next = host_variables;
    host_variables = variable;
    pthread_mutex_unlock(&lock);
}

static cudaError_t symbol_address(void **address, const void *symbol)
{
    pthread_mutex_lock(&lock);
    const struct host_variable *variable = host_variables;
    while (variable && variable->address != symbol)
        variable = variable->next;
    pthread_mutex_unlock(&lock);
    if (!variable)
        return cudaErrorInvalidSymbol;
    CUlibrary library;
    CUdeviceptr found;
    size_t bytes;
    cudaError_t error = runtime_library(variable->binary, &library);
    if (!error)
        error = driver.library_global(&found, &bytes, library, variable->name);
    if (!error)
        *address = (void *)found;
    return error;
}

DEFINE(cudaGetSymbolAddress, (void **address, const void *symbol),
       address ? symbol_address(address, symbol) : cudaErrorInvalidValue)
DEFINE(cudaLibraryGetGlobal,
       (void **address, size_t *bytes, cudaLibrary_t library, const char *name),
       driver.library_global((CUdeviceptr *)address, bytes, library, name))
DEFINE(cudaLibraryGetManaged,
       (void **address, size_t *bytes, cudaLibrary_t library, const char *name),
       driver.library_managed((CUdeviceptr *)address, bytes, library, name))
