/*
 * A CUDA program for tests: it does what it is told, one command a line, and
 * says exactly what it did. `help` lists the commands.
 *
 *     workload [--ctx primary|create] [-c "COMMAND; COMMAND ..."]
 *
 * The first line on standard output is "ready PID". Every command then prints
 * one line, "ok ..." or "error ...". After the commands of -c it reads more
 * from standard input, and it ends only at `exit`, at the end of the input, or
 * by a signal; except after a signal, the last line is "done {JSON}".
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

#define BLANKS " \t\r\n"

bool exiting;
int exit_code;

/* Of a program without further commands. */
__attribute__((weak)) const struct command more_commands[] = {
    { .usage = NULL },
};

static const struct command *const command_groups[] = {
    main_commands,   memory_commands,  kind_commands,   stress_commands,
    thread_commands, process_commands, module_commands, launch_commands,
    graph_commands,  copy_commands,    async_commands,  gmemory_commands,
    vmm_commands,    context_commands, cuda13_commands, more_commands,
};

enum { GROUPS = sizeof command_groups / sizeof *command_groups };

static const struct command *find_command(const char *name)
{
    size_t length = strlen(name);
    for (int group = 0; group < GROUPS; group++)
        for (const struct command *row = command_groups[group]; row->usage; row++)
            if (!strncmp(row->usage, name, length) && strcspn(row->usage, " ") == length)
                return row;
    return NULL;
}

/* The first of `stops` in `text`, or its end, passing over '' quotes. */
static char *find_outside_quotes(char *text, const char *stops)
{
    bool quoted = false;
    for (; *text; text++) {
        if (*text == '\'')
            quoted = !quoted;
        else if (!quoted && strchr(stops, *text))
            break;
    }
    return text;
}

/* Takes a word off the line. One in '' may contain blanks and separators; the quotes go. */
static char *next_word(char **line)
{
    char *word = *line;
    char *end = find_outside_quotes(word, BLANKS);
    *line = *end ? end + 1 : end;
    *end = '\0';
    *line += strspn(*line, BLANKS);
    size_t length = strlen(word);
    if (length > 1 && *word == '\'' && word[length - 1] == '\'') {
        word[length - 1] = '\0';
        word++;
    }
    return word;
}

/* ---- arguments: see struct command ------------------------------------- */

struct argument {
    const char *name;
    size_t length; /* of the name */
    bool is_optional, is_text, is_option, is_flag, is_rest;
};

/* The arguments in a usage; returns how many. */
static int read_usage(const char *usage, struct argument *arguments)
{
    int count = 0;
    while (*(usage += strcspn(usage, " "))) {
        struct argument argument = { .is_optional = *++usage == '[' };
        size_t length = strcspn(usage, " "), end = argument.is_optional ? length - 1 : length;
        argument.name = usage + argument.is_optional;
        argument.length = strcspn(argument.name, "=]> ");
        argument.is_option = argument.name[argument.length] == '=';
        argument.is_text = *argument.name == '<' || (argument.is_option && usage[end - 1] == '=');
        argument.is_flag = !argument.is_option && islower((unsigned char)*argument.name);
        argument.is_rest = *argument.name == '.';
        arguments[count++] = argument;
    }
    return count;
}

/* What `word` gives the argument; NULL if it is about another. */
static const char *value_in(const struct argument *argument, const char *word)
{
    if (!argument->is_option && !argument->is_flag)
        return word;
    if (strncmp(word, argument->name, argument->length))
        return NULL;
    word += argument->length;
    if (argument->is_flag)
        return *word ? NULL : argument->name;
    return *word == '=' ? word + 1 : NULL;
}

/* The argument that `word` is for: a required one, an option, or else an optional one. */
static int find_argument(const struct args *args, const struct argument *arguments, int count,
                         const char *word)
{
    for (int i = 0; i < count; i++)
        if (!args->text[i] && !arguments[i].is_optional && !arguments[i].is_rest)
            return i;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++)
            if (!args->text[i] && (arguments[i].is_option || arguments[i].is_flag) == !pass &&
                value_in(&arguments[i], word))
                return i;
    return -1;
}

static bool read_arguments(struct args *args, struct reply *reply)
{
    struct argument arguments[MAX_ARGUMENTS];
    int count = read_usage(args->command->usage, arguments);
    bool is_complete = args->count <= MAX_WORDS;
    for (int i = 0; i < count; i++)
        args->number[i] = !strncmp(arguments[i].name, "COUNT]", arguments[i].length + 1);
    for (int w = 0; is_complete && w < args->count; w++) {
        int i = find_argument(args, arguments, count, args->word[w]);
        if (!(is_complete = i >= 0))
            break;
        args->text[i] = value_in(&arguments[i], args->word[w]);
        args->number[i] = arguments[i].is_flag;
        if (arguments[i].is_rest)
            break;
        if (!arguments[i].is_text && !arguments[i].is_flag &&
            !parse_u64(args->text[i], &args->number[i], reply))
            return false;
    }
    for (int i = 0; i < count; i++)
        is_complete &= arguments[i].is_optional || args->text[i];
    return is_complete || reply_no(reply, "usage: %s", args->command->usage);
}

static bool run_command(const char *name, struct args *args, struct reply *reply, bool on_worker)
{
    args->command = find_command(name);
    if (!args->command)
        return reply_no(reply, "unknown command %s; try help", name);
    if ((args->command->flags & ON_MAIN) && on_worker)
        return reply_no(reply, "%s works on the main thread only", name);
    if ((args->command->flags & NEEDS_API) && !api.alloc)
        return reply_no(reply, "no library yet: load PATH first");
    return read_arguments(args, reply) && args->command->run(args, reply);
}

bool run_line_quietly(char *line, struct reply *reply, bool on_worker)
{
    line += strspn(line, BLANKS);
    if (*line == '@') {
        char *name = line + 1;
        line = name + strcspn(name, BLANKS);
        if (*line)
            *line++ = '\0';
        if (on_worker)
            return reply_no(reply, "@%s works on the main thread only", name);
        return run_on_worker(name, line, reply);
    }
    if (!*line)
        return reply_no(reply, "empty command");
    const char *name = next_word(&line);
    char *rest = strdup(line);
    struct args args = { .rest = rest };
    for (; *line; args.count++) {
        char *word = next_word(&line);
        if (args.count < MAX_WORDS)
            args.word[args.count] = word;
    }
    bool ok = run_command(name, &args, reply, on_worker);
    free(rest);
    return ok;
}

/* The same, and prints its reply. */
static void run_line(char *line)
{
    struct reply reply = { .length = 0 };
    bool ok = run_line_quietly(line, &reply, false);
    printf("%s%s%s", ok ? "ok" : "error", reply.length ? " " : "", reply.text);
    if (reply.more)
        printf(" %s", reply.more);
    putchar('\n');
    fflush(stdout);
    free(reply.more);
}

/* A piece of nothing but blanks, as after a trailing separator, is no command. */
void run_sequence(char *text, char separator)
{
    while (text && !exiting) {
        char *end = find_outside_quotes(text, (char[]){ separator, '\0' });
        char *next = *end ? end + 1 : NULL;
        *end = '\0';
        if (text[strspn(text, BLANKS)])
            run_line(text);
        text = next;
    }
}

static void run_input(void)
{
    char *line = NULL;
    size_t size = 0;
    /* Unbuffered: what follows an exec command is for the next program. */
    setvbuf(stdin, NULL, _IONBF, 0);
    while (!exiting && getline(&line, &size, stdin) != -1)
        run_line(line);
    free(line);
}

static bool run_help(const struct args *args, struct reply *reply)
{
    (void)args;
    for (int group = 0; group < GROUPS; group++)
        for (const struct command *row = command_groups[group]; row->usage; row++)
            reply_add(reply, "%s%s", reply->length ? "; " : "", row->usage);
    return true;
}

static bool run_status(const struct args *args, struct reply *reply)
{
    (void)args;
    char text[TRUTH_TEXT_BYTES];
    reply_add(reply, "%s", truth_text(text, sizeof text, false));
    return true;
}

static bool run_exit(const struct args *args, struct reply *reply)
{
    (void)reply;
    exiting = true;
    exit_code = (int)args->number[0];
    return true;
}

const struct command main_commands[] = {
    { "help", 0, run_help },
    { "status", 0, run_status },
    { "exit [CODE]", ON_MAIN, run_exit },
    { .usage = NULL },
};

int main(int argc, char **argv)
{
    bool create_contexts = false;
    char *commands = NULL;
    for (int i = 1; i < argc; i += 2) {
        bool has_value = i + 1 < argc;
        if (has_value && !strcmp(argv[i], "-c")) {
            commands = argv[i + 1];
        } else if (has_value && !strcmp(argv[i], "--ctx") &&
                   (!strcmp(argv[i + 1], "primary") || !strcmp(argv[i + 1], "create"))) {
            create_contexts = !strcmp(argv[i + 1], "create");
        } else {
            fprintf(stderr, "usage: %s [--ctx primary|create] [-c COMMANDS]\n", argv[0]);
            return 2;
        }
    }
    int error = api.start ? api.start(create_contexts) : 0;
    if (error) {
        fprintf(stderr, "%s: CUDA error %d at start\n", argv[0], error);
        return 1;
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    run_sequence(commands, ';');
    run_input();
    char text[TRUTH_TEXT_BYTES];
    printf("done {\"pid\":%d,%s}\n", getpid(), truth_text(text, sizeof text, true));
    fflush(stdout);
    return exit_code;
}
