/* Commands about modules and their variables, and the kernels that commands can name. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"
#include "workload_image.h"

#define SHOWN_KERNELS 16

struct variable {
    char *name;
    size_t bytes;
    bool managed;
};

struct module {
    bool live;
    int device;
    void *context; /* see thread_context */
    const struct module_method *method;
    void *module;
    struct kernel *kernels;
    size_t count;
    struct variable *variables;
    size_t variable_count;
};

static struct list modules = LIST(struct module, "module");

static const struct module_method *find_module_method(const char *via, struct reply *reply)
{
    const struct module_method *method = api.modules;
    while (via && method->name && strcmp(method->name, via))
        method++;
    if (method->name)
        return method;
    reply_add(reply, "no way to load a module via %s", via);
    return NULL;
}

static void add_kernel(struct module *module, const char *name)
{
    module->kernels = realloc(module->kernels, (module->count + 1) * sizeof *module->kernels);
    module->kernels[module->count++] = (struct kernel){ .name = strdup(name) };
}

/* `word` is NAME=[m]BYTES, with an `m` for a managed variable. */
static void add_variable(struct module *module, const char *word)
{
    size_t size = (module->variable_count + 1) * sizeof *module->variables;
    size_t length = strcspn(word, "=");
    bool managed = word[length + 1] == 'm';
    module->variables = realloc(module->variables, size);
    module->variables[module->variable_count++] =
        (struct variable){ .name = strndup(word, length),
                           .bytes = strtoull(word + length + 1 + managed, NULL, 0),
                           .managed = managed };
}

/* A module image with these contents; the caller frees it. */
static char *image_of(const struct module *module)
{
    char *image;
    size_t size;
    FILE *stream = open_memstream(&image, &size);
    image_begin(stream);
    for (size_t i = 0; i < module->count; i++)
        image_add_kernel(stream, module->kernels[i].name);
    for (size_t i = 0; i < module->variable_count; i++)
        image_add_variable(stream, module->variables[i].name, module->variables[i].bytes,
                           module->variables[i].managed);
    fclose(stream);
    return image;
}

static int load_module(struct module *module)
{
    char *image = image_of(module);
    int error = module->method->load(&module->module, image);
    free(image);
    if (error)
        return error;
    for (size_t i = 0; !error && i < module->count; i++)
        error = module->method->kernel(&module->kernels[i].kernel, module->module,
                                       module->kernels[i].name);
    if (error)
        module->method->unload(module->module);
    module->live = !error;
    return error;
}

static void forget_module(struct module *module)
{
    for (size_t i = 0; i < module->count; i++)
        free(module->kernels[i].name);
    for (size_t i = 0; i < module->variable_count; i++)
        free(module->variables[i].name);
    free(module->kernels);
    free(module->variables);
    module->kernels = NULL;
    module->variables = NULL;
    module->count = module->variable_count = 0;
    module->live = false;
}

static void reply_module(struct reply *reply, size_t number, const struct module *module)
{
    reply_add(reply, "%zu", number);
    for (size_t i = 0; i < module->count && i < SHOWN_KERNELS; i++)
        reply_add(reply, " %s=0x%lx", module->kernels[i].name,
                  (uintptr_t)module->kernels[i].kernel);
    if (module->count > SHOWN_KERNELS)
        reply_add(reply, " ... %zu more", module->count - SHOWN_KERNELS);
}

/* The words are kernel names, and variables as NAME=[m]BYTES, but for two
 * options: via=, and generated=COUNT for kernels of the names generated_0,
 * generated_1 and so on. */
static bool read_module(const struct args *args, struct module *module, struct reply *reply)
{
    const char *via = NULL;
    uint64_t generated = 0;
    char name[32];
    for (int i = 0; i < args->count; i++) {
        const char *word = args->word[i];
        if (!strncmp(word, "via=", 4))
            via = word + 4;
        else if (strncmp(word, "generated=", 10))
            (strchr(word, '=') ? add_variable : add_kernel)(module, word);
        else if (!parse_u64(word + 10, &generated, reply))
            return false;
    }
    for (uint64_t i = 0; i < generated; i++) {
        snprintf(name, sizeof name, "generated_%lu", i);
        add_kernel(module, name);
    }
    module->method = find_module_method(via, reply);
    return module->method != NULL;
}

static bool run_module(const struct args *args, struct reply *reply)
{
    struct module module = { .device = thread_device, .context = thread_context };
    if (!read_module(args, &module, reply) || !reply_error(reply, load_module(&module))) {
        forget_module(&module);
        return false;
    }
    reply_module(reply, list_add(&modules, &module), &module);
    return true;
}

static bool run_unload(const struct args *args, struct reply *reply)
{
    struct tally tally = { 0 };
    struct module *module = list_named(&modules, args->number[0], reply);
    if (!module || !reply_error(reply, module->method->unload(module->module)))
        return false;
    slots_end_owned(&tally, module->module);
    truth_add(&tally);
    forget_module(module);
    return true;
}

static bool is_library(const struct module *module)
{
    return strcmp(module->method->name, "module") != 0;
}

void modules_forget_context(int device, const void *context)
{
    /* Libraries outlive their device's reset. */
    struct module *module;
    FOR_EACH(module, &modules)
    if (module->live && module->device == device && module->context == context &&
        !is_library(module))
        forget_module(module);
    api.forget();
}

bool kernel_named(const char *name, const void **kernel, struct reply *reply)
{
    for (size_t m = modules.count; m-- > 0;) {
        const struct module *module = list_at(&modules, m);
        for (size_t i = 0; i < module->count; i++)
            if (!strcmp(module->kernels[i].name, name)) {
                *kernel = module->kernels[i].kernel;
                return true;
            }
    }
    for (int i = 0; i < BUILTIN_KERNELS; i++)
        if (!strcmp(builtin_kernels[i], name) || !strcmp((char[]){ (char)('0' + i), '\0' }, name))
            return reply_error(reply, api.builtin(i, kernel));
    return reply_no(reply, "no kernel %s", name);
}

const struct kernel *last_module(size_t *count)
{
    const struct module *module = list_at(&modules, modules.count - 1);
    if (!module || !module->live)
        return NULL;
    *count = module->count;
    return module->kernels;
}

/* ---- variables: no call allocates one. It is live from the query of its address and size until
 * its module is unloaded or the context is destroyed. Another query returns the same. --------- */

/* Counts the variable that was found. */
static bool add_symbol(struct reply *reply, struct slot slot, int device, void *context, int error)
{
    struct tally tally = { 0 };
    if (tally_result(&tally, error)) {
        if (slot.handle && slot.bytes && !slot_of(KIND_STATIC, slot.handle)) {
            struct slot *added = slot_at(slot_add(&tally, slot));
            added->device = device;
            added->context = context;
        }
        reply_add(reply, "0x%lx bytes=%zu", slot.handle, slot.bytes);
    }
    return reply_done(reply, &tally);
}

/* With `address` or `size`, only that is queried: the other pointer is NULL. */
static bool symbol_of(const struct module *module, const struct variable *variable,
                      const struct args *args, struct reply *reply)
{
    bool by_library = is_library(module);
    struct slot slot = { .kind = KIND_STATIC, .owner = module->module };
    int error = module->method->global(
        module->module, variable->name, by_library && variable->managed,
        args->number[2] ? NULL : &slot.handle, args->number[1] ? NULL : &slot.bytes);
    return add_symbol(reply, slot, by_library ? thread_device : module->device,
                      by_library ? thread_context : module->context, error);
}

static bool run_symbol(const struct args *args, struct reply *reply)
{
    for (size_t m = modules.count; m-- > 0;) {
        const struct module *module = list_at(&modules, m);
        for (size_t i = 0; i < module->variable_count; i++)
            if (!strcmp(module->variables[i].name, args->text[0]))
                return symbol_of(module, &module->variables[i], args, reply);
    }
    for (int i = 0; i < BUILTIN_VARIABLES; i++) {
        if (strcmp(builtin_variables[i].name, args->text[0]))
            continue;
        struct slot slot = { .kind = KIND_STATIC, .bytes = builtin_variables[i].bytes };
        int device = thread_device;
        void *context = thread_context;
        int error = api.builtin_variable(i, (void **)&slot.handle, &device, &context);
        return add_symbol(reply, slot, device, context, error);
    }
    return reply_no(reply, "no variable %s", args->text[0]);
}

const struct command module_commands[] = {
    /* ... are kernels' names, VARIABLE=[m]BYTES, generated=COUNT, via=module|library|function */
    { "module ...", NEEDS_API, run_module },
    { "unload MODULE", NEEDS_API, run_unload },
    { "symbol <name> [address] [size]", NEEDS_API, run_symbol },
    { .usage = NULL },
};
