/* Stand-in libcupti: which release it is, and how it misbehaves. */
#include "cupti_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct faults faults;
enum release release = V13_0;

static const struct word {
    const char *name;
    bool *flag;
    unsigned int *number;
} words[] = {
    { "in_use", &faults.in_use, NULL },
    { "not_initialized", &faults.not_initialized, NULL },
    { "no_callbacks", &faults.no_callbacks, NULL },
    { "refused", NULL, &faults.refused },
    { "held", &faults.held, NULL },
    { "threads", &faults.threads, NULL },
    { "dropped", NULL, &faults.dropped },
    { "invalid", NULL, &faults.invalid },
    { "unknown", NULL, &faults.unknown },
    { "truncated", NULL, &faults.truncated },
    { "null_names", &faults.null_names, NULL },
    { "wild_names", &faults.wild_names, NULL },
    { "huge_names", &faults.huge_names, NULL },
    { "zero_times", &faults.zero_times, NULL },
    { "strange_version", &faults.strange_version, NULL },
    { "old_version", &faults.old_version, NULL },
    { "extras", &faults.extras, NULL },
};

/* A test with a misspelt fault must not pass by running without it. */
static void refuse(const char *variable, const char *text)
{
    fprintf(stderr, "stand-in CUPTI: %s=%s: not understood\n", variable, text);
    abort();
}

static bool take(const char *text, size_t length)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t name = strlen(words[i].name);
        if (length < name || strncmp(text, words[i].name, name))
            continue;
        if (words[i].flag && length == name) {
            *words[i].flag = true;
            return true;
        }
        if (words[i].number && length > name + 1 && text[name] == '=') {
            char *end;
            unsigned long value = strtoul(text + name + 1, &end, 10);
            *words[i].number = (unsigned int)value;
            return end == text + length && value && value <= INT32_MAX;
        }
    }
    return false;
}

void faults_setup(void)
{
    static const char *const releases[RELEASES] = {
        "11.8", "12.1", "12.4", "12.8", "13.0", "13.5"
    };
    const char *version = getenv("STANDIN_CUPTI_VERSION");
    if (version && *version) {
        int found = 0;
        while (found < RELEASES && strcmp(releases[found], version))
            found++;
        if (found == RELEASES)
            refuse("STANDIN_CUPTI_VERSION", version);
        release = (enum release)found;
    }
    const char *text = getenv("STANDIN_CUPTI_FAULTS");
    while (text && *text) {
        size_t length = strcspn(text, ",");
        if (!take(text, length))
            refuse("STANDIN_CUPTI_FAULTS", text);
        text += length + (text[length] == ',');
    }
}
