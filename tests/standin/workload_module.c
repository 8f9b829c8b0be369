/* Commands about modules, and the kernels that commands can name. */
#define _GNU_SOURCE
#include "workload_module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload_image.h"

#define SHOWN_KERNELS 16
#define MAX_GENERATED 2000000

struct variable {
    char *name;
    size_t bytes;
    bool managed;
};

/* One command runs at a time, on whichever thread: no lock. */
static struct module {
    const struct module_method *method;
    void *module;
    int device;
    void *context; /* see thread_context */
    bool live;
    struct kernel *kernels;
    size_t count;
    struct variable *variables;
    size_t variable_count;
} * modules;
static size_t module_count;

static const struct module_method *find_module_method(const char *via, struct reply *reply)
{
    const struct module_method *method = api.work->modules;
    while (via && method->name && strcmp(method->name, via))
        method++;
    if (!method->name)
        reply_add(reply, "no way to load a module via %s", via);
    return method->name ? method : NULL;
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
        reply_add(reply, " %s=0x%llx", module->kernels[i].name,
                  (unsigned long long)(uintptr_t)module->kernels[i].kernel);
    if (module->count > SHOWN_KERNELS)
        reply_add(reply, " ... %zu more", module->count - SHOWN_KERNELS);
}

/* The words are kernel names, and variables as NAME=[m]BYTES, but for two
 * options: via=, and generated=COUNT for kernels of the names generated_0,
 * generated_1 and so on. */
static bool read_module(const struct words *words, struct module *module, struct reply *reply)
{
    const char *via = NULL;
    uint64_t generated = 0;
    char name[32];
    for (int i = 1; i < words->count; i++) {
        const char *word = words->word[i];
        if (!strncmp(word, "via=", 4))
            via = word + 4;
        else if (strncmp(word, "generated=", 10))
            (strchr(word, '=') ? add_variable : add_kernel)(module, word);
        else if (!parse_u64(word + 10, MAX_GENERATED, &generated, reply))
            return false;
    }
    for (uint64_t i = 0; i < generated; i++) {
        snprintf(name, sizeof name, "generated_%llu", (unsigned long long)i);
        add_kernel(module, name);
    }
    module->method = find_module_method(via, reply);
    return module->method != NULL;
}

static bool run_module(struct words *words, struct reply *reply)
{
    struct module module = { .device = thread_device, .context = thread_context };
    if (!read_module(words, &module, reply)) {
        forget_module(&module);
        return false;
    }
    int error = load_module(&module);
    if (error) {
        reply_add(reply, "CUDA error %d", error);
        forget_module(&module);
        return false;
    }
    modules = realloc(modules, (module_count + 1) * sizeof *modules);
    modules[module_count] = module;
    reply_module(reply, module_count++, &module);
    return true;
}

static bool run_unload(struct words *words, struct reply *reply)
{
    uint64_t number;
    if (!parse_u64(words->word[1], SIZE_MAX, &number, reply))
        return false;
    if (number >= module_count || !modules[number].live) {
        reply_add(reply, "no module %s", words->word[1]);
        return false;
    }
    int error = modules[number].method->unload(modules[number].module);
    if (error) {
        reply_add(reply, "CUDA error %d", error);
        return false;
    }
    struct tally tally = { 0 };
    kslots_end_owned(&tally, modules[number].module);
    truth_add(&tally);
    forget_module(&modules[number]);
    return true;
}

bool variable_named(const char *name, struct loaded_variable *found)
{
    for (size_t m = module_count; m-- > 0;)
        for (size_t i = 0; modules[m].live && i < modules[m].variable_count; i++) {
            const struct variable *variable = &modules[m].variables[i];
            if (strcmp(variable->name, name))
                continue;
            bool is_library = strcmp(modules[m].method->name, "module") != 0;
            *found = (struct loaded_variable){
                .method = modules[m].method,
                .module = modules[m].module,
                .device = is_library ? thread_device : modules[m].device,
                .context = is_library ? thread_context : modules[m].context,
                .managed = is_library && variable->managed,
                .bytes = variable->bytes,
            };
            return true;
        }
    return false;
}

void modules_forget_context(int device, const void *context)
{
    /* Libraries outlive their device's reset. */
    for (size_t i = 0; i < module_count; i++)
        if (modules[i].live && modules[i].device == device && modules[i].context == context &&
            !strcmp(modules[i].method->name, "module"))
            forget_module(&modules[i]);
    api.work->forget();
}

bool kernel_named(const char *name, const void **kernel, struct reply *reply)
{
    for (size_t m = module_count; m-- > 0;)
        for (size_t i = 0; i < modules[m].count; i++)
            if (modules[m].live && !strcmp(modules[m].kernels[i].name, name)) {
                *kernel = modules[m].kernels[i].kernel;
                return true;
            }
    for (int i = 0; i < BUILTIN_KERNELS; i++) {
        if (strcmp(builtin_kernels[i], name) && strcmp((char[]){ (char)('0' + i), '\0' }, name))
            continue;
        int error = api.work->builtin(i, kernel);
        if (error)
            reply_add(reply, "CUDA error %d", error);
        return error == 0;
    }
    reply_add(reply, "no kernel %s", name);
    return false;
}

const struct kernel *last_module(size_t *count)
{
    const struct module *module = module_count ? &modules[module_count - 1] : NULL;
    if (!module || !module->live)
        return NULL;
    *count = module->count;
    return module->kernels;
}

const struct command module_commands[] = {
    { "module", "module NAME|VARIABLE=[m]BYTES ... [generated=COUNT] [via=module|library|function]",
      1, MAX_WORDS - 1, NEEDS_API, run_module },
    { "unload", "unload MODULE", 1, 1, NEEDS_API, run_unload },
    { .name = NULL },
};
