/* The command that queries the address of a variable. No call allocates one: it is live from the
 * query of its address and size until its module is unloaded or the context is destroyed. Another
 * query returns the same. */
#include <string.h>

#include "workload.h"
#include "workload_module.h"

static bool is_live(uint64_t address)
{
    for (size_t i = 0; i < kslot_count(); i++) {
        const struct kslot *slot = kslot_at(i);
        if (slot->live && slot->kind == KIND_STATIC && slot->handle == address)
            return true;
    }
    return false;
}

static void add_variable(struct tally *tally, uint64_t address,
                         const struct loaded_variable *variable)
{
    if (!address || !variable->bytes || is_live(address))
        return;
    struct kslot slot = { .kind = KIND_STATIC, .handle = address, .owner = variable->module };
    slot.bytes = variable->bytes;
    struct kslot *added = kslot_at(kslot_add(tally, slot));
    added->device = variable->device;
    added->context = variable->context;
}

static int ask_builtin(const char *name, uint64_t *address, struct loaded_variable *variable,
                       struct reply *reply)
{
    for (int i = 0; i < BUILTIN_VARIABLES; i++) {
        if (strcmp(builtin_variables[i].name, name))
            continue;
        void *found = NULL;
        *variable = (struct loaded_variable){ .device = thread_device, .context = thread_context };
        int error = api.kinds->builtin_variable(i, &found, &variable->device, &variable->context);
        *address = (uintptr_t)found;
        variable->bytes = builtin_variables[i].bytes;
        return error;
    }
    reply_add(reply, "no variable %s", name);
    return -1;
}

/* With `address` or `size`, only that is queried: the other pointer is NULL. */
static bool run_symbol(struct words *words, struct reply *reply)
{
    const char *name = words->word[1], *only = words->word[2] ? words->word[2] : "";
    struct loaded_variable variable;
    uint64_t address = 0;
    int error;
    if (!variable_named(name, &variable)) {
        error = ask_builtin(name, &address, &variable, reply);
    } else {
        size_t bytes = 0;
        bool no_address = !strcmp(only, "size"), no_bytes = !strcmp(only, "address");
        error = variable.method->global(variable.module, name, variable.managed,
                                        no_address ? NULL : &address, no_bytes ? NULL : &bytes);
        variable.bytes = bytes;
    }
    if (error < 0) /* no variable of that name: nothing was called */
        return false;
    struct tally tally = { 0 };
    if (tally_result(&tally, error)) {
        add_variable(&tally, address, &variable);
        reply_add(reply, "0x%llx bytes=%zu", (unsigned long long)address, variable.bytes);
    } else {
        reply_add(reply, "error=%d failed=1", error);
    }
    truth_add(&tally);
    return true;
}

const struct command symbol_commands[] = {
    { "symbol", "symbol NAME [address|size]", 1, 2, NEEDS_API, run_symbol },
    { .name = NULL },
};
