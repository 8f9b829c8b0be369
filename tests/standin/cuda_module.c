/*
 * Stand-in libcuda: modules, libraries, and what is in them.
 *
 * A module belongs to a context and goes with it; a library does not. Unloading
 * releases the kernels last to first: the first kernel of the next module gets
 * the handle of the first kernel of the one that went.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

/* A CUmodule or a CUlibrary. */
struct module {
    struct handle handle;
    CUcontext owner; /* NULL for a library */
    char *image;     /* its lines, each ended by a NUL */
    struct kernel **kernels;
    size_t count;
    size_t next; /* where the next lookup starts: they come in order */
    struct variable *variables;
};

_Static_assert(sizeof(struct module) <= HANDLE_BYTES, "a module must fit its slot");

/* Protects lookups and unloads. Launches take no lock: as with the real driver, launching a kernel
 * that another thread unloads is undefined. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Readable, and no identifier: a field of another meaning. */
static const unsigned char not_a_name[] = { 0x7f, 0x01, 0xff, 0x20, 0x80, 0x00 };

static const char *visible_name(const char *name)
{
    switch (settings.handle_layout) {
    case LAYOUT_OTHER:
        return (const char *)0x5a5a5a5a5a5aull; /* nothing is mapped there */
    case LAYOUT_TEXT:
        return (const char *)not_a_name;
    case LAYOUT_WRONG:
        return "_Z11otherKernelPfi";
    default:
        return name;
    }
}

static struct kernel *kernel_new(enum handle_kind kind, const char *name)
{
    struct kernel *kernel = handle_take(kind);
    if (!kernel)
        return NULL;
    kernel->name = name;
    kernel->visible_name = visible_name(name);
    return kernel;
}

static void kernel_delete(struct kernel *kernel)
{
    if (kernel->function)
        handle_release(kernel->function);
    handle_release(kernel);
}

static void module_delete(struct module *module)
{
    while (module->count)
        kernel_delete(module->kernels[--module->count]);
    variables_delete(module->variables);
    free(module->kernels);
    free(module->image);
    handle_release(module);
}

/* Cuts the image into lines. Returns how many there are. */
static size_t split_lines(char *names)
{
    size_t count = 0;
    for (char *end; *names && (end = strchr(names, '\n')); names = end + 1) {
        *end = '\0';
        count++;
    }
    return count;
}

static CUresult read_lines(struct module *module, enum handle_kind kernel_kind)
{
    CUresult error = CUDA_SUCCESS;
    size_t lines = split_lines(module->image);
    module->kernels = calloc(lines, sizeof *module->kernels);
    for (const char *line = module->image; !error && lines--; line += strlen(line) + 1) {
        if (variable_is(line)) {
            error = variable_add(&module->variables, line);
            continue;
        }
        struct kernel *kernel = kernel_new(kernel_kind, line);
        if (kernel)
            module->kernels[module->count++] = kernel;
        else
            error = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return error;
}

static CUresult module_new(void **result, const void *image, CUcontext owner, enum handle_kind kind,
                           enum handle_kind kernel_kind)
{
    if (!result || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if (strncmp(image, STANDIN_IMAGE_MAGIC, strlen(STANDIN_IMAGE_MAGIC)))
        return CUDA_ERROR_INVALID_IMAGE;
    struct module *module = handle_take(kind);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->owner = owner;
    module->image = strdup((const char *)image + strlen(STANDIN_IMAGE_MAGIC));
    CUresult error = read_lines(module, kernel_kind);
    if (error)
        module_delete(module);
    else
        *result = module;
    return error;
}

static CUresult module_find(void **result, struct module *module, enum handle_kind kind,
                            const char *name)
{
    if (!result || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!handle_is(module, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult error = CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < module->count; i++) {
        size_t place = (module->next + i) % module->count;
        if (strcmp(module->kernels[place]->name, name))
            continue;
        module->next = place + 1;
        *result = module->kernels[place];
        error = CUDA_SUCCESS;
        break;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static CUresult module_unload(struct module *module, enum handle_kind kind)
{
    if (!handle_is(module, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    module_delete(module);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult find_variable(CUdeviceptr *address, size_t *bytes, struct module *module,
                              enum handle_kind kind, const char *name, bool managed_only)
{
    CUcontext context;
    CUresult error = context_current(&context);
    if (error)
        return error;
    if (!name || (!address && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!handle_is(module, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    error = variable_find(module->variables, name, managed_only,
                          module->owner ? module->owner : context, address, bytes);
    pthread_mutex_unlock(&lock);
    return error;
}

static void delete_if_owned(void *object, void *context)
{
    struct module *module = object;
    variables_forget(module->variables, context);
    if (module->owner == context)
        module_delete(module);
}

void modules_release_owned(CUcontext context)
{
    pthread_mutex_lock(&lock);
    handles_each(HANDLE_MODULE, delete_if_owned, context);
    handles_each(HANDLE_LIBRARY, delete_if_owned, context);
    pthread_mutex_unlock(&lock);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER_CONTEXT();
    return module_new((void **)module, image, context, HANDLE_MODULE, HANDLE_FUNCTION);
}

CUresult cuModuleUnload(CUmodule module)
{
    ENTER_INITIALIZED();
    return module_unload((struct module *)module, HANDLE_MODULE);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    ENTER_INITIALIZED();
    return module_find((void **)function, (struct module *)module, HANDLE_MODULE, name);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name)
{
    ENTER_INITIALIZED();
    return find_variable(address, bytes, (struct module *)module, HANDLE_MODULE, name, false);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name)
{
    ENTER_INITIALIZED();
    return find_variable(address, bytes, (struct module *)library, HANDLE_LIBRARY, name, false);
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                             const char *name)
{
    ENTER_INITIALIZED();
    return find_variable(address, bytes, (struct module *)library, HANDLE_LIBRARY, name, true);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                           void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                           void **values, unsigned int count)
{
    ENTER_INITIALIZED();
    (void)jit_options, (void)jit_values, (void)options, (void)values;
    if (jit_count || count)
        return CUDA_ERROR_INVALID_VALUE;
    return module_new((void **)library, code, NULL, HANDLE_LIBRARY, HANDLE_KERNEL);
}

CUresult cuLibraryUnload(CUlibrary library)
{
    ENTER_INITIALIZED();
    return module_unload((struct module *)library, HANDLE_LIBRARY);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    ENTER_INITIALIZED();
    return module_find((void **)kernel, (struct module *)library, HANDLE_LIBRARY, name);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    ENTER_INITIALIZED();
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    if (!handle_is(kernel, HANDLE_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    struct kernel *object = (struct kernel *)kernel;
    pthread_mutex_lock(&lock);
    if (!object->function)
        object->function = (CUfunction)kernel_new(HANDLE_FUNCTION, object->name);
    *function = object->function;
    pthread_mutex_unlock(&lock);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
