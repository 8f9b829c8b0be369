/* Parsing of a command's options. */
#include "workload_options.h"

#include <stdio.h>
#include <string.h>

static bool parse_size(const char *text, unsigned int *size, struct reply *reply)
{
    int used = 0;
    if (sscanf(text, "%u,%u,%u%n", &size[0], &size[1], &size[2], &used) == 3 && !text[used])
        return true;
    reply_add(reply, "%s: expected X,Y,Z", text);
    return false;
}

/* The text that `word` gives the option, or NULL if it is about another. */
static const char *value_in(const char *word, const struct option *option)
{
    if (!option->name)
        return *word >= '0' && *word <= '9' ? word : NULL;
    size_t length = strlen(option->name);
    if (strncmp(word, option->name, length))
        return NULL;
    if (option->type == OPTION_FLAG)
        return word[length] ? NULL : word;
    return word[length] == '=' ? word + length + 1 : NULL;
}

static bool parse_value(const char *text, const struct option *option, struct reply *reply)
{
    switch (option->type) {
    case OPTION_NUMBER:
        return parse_u64(text, option->max, option->value, reply);
    case OPTION_SIZE:
        return parse_size(text, option->value, reply);
    case OPTION_TEXT:
        *(const char **)option->value = text;
        return true;
    case OPTION_FLAG:
        *(bool *)option->value = true;
        return true;
    }
    return false;
}

bool parse_options(const struct words *words, int first, const struct option *options, int count,
                   struct reply *reply)
{
    for (int i = first; i < words->count && i < MAX_WORDS; i++) {
        const char *text = NULL;
        int option = 0;
        while (option < count && !(text = value_in(words->word[i], &options[option])))
            option++;
        if (!text) {
            reply_add(reply, "%s: no such option", words->word[i]);
            return false;
        }
        if (!parse_value(text, &options[option], reply))
            return false;
    }
    return true;
}
