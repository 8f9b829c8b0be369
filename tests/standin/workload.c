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
    { .name = NULL },
};

static const struct command *const command_groups[] = {
    main_commands,    memory_commands,     stress_commands, thread_commands, process_commands,
    module_commands,  launch_commands,     graph_commands,  copy_commands,   allocate_commands,
    context_commands, symbol_commands,     async_commands,  share_commands,  gmemory_commands,
    vmm_commands,     vmm_stress_commands, more_commands,
};

enum { GROUPS = sizeof command_groups / sizeof *command_groups };

static const struct command *find_command(const char *name)
{
    for (int group = 0; group < GROUPS; group++)
        for (const struct command *row = command_groups[group]; row->name; row++)
            if (!strcmp(row->name, name))
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

/* A word in '' may contain blanks and separators; the quotes go. */
static void split(char *line, struct words *words)
{
    words->count = 0;
    words->rest = NULL;
    for (;;) {
        line += strspn(line, BLANKS);
        if (words->count == 1)
            words->rest = strdup(line);
        if (!*line)
            break;
        char *word = line;
        line = find_outside_quotes(line, BLANKS);
        if (*line)
            *line++ = '\0';
        size_t length = strlen(word);
        if (length > 1 && *word == '\'' && word[length - 1] == '\'') {
            word[length - 1] = '\0';
            word++;
        }
        if (words->count < MAX_WORDS)
            words->word[words->count] = word;
        words->count++;
    }
    words->word[words->count < MAX_WORDS ? words->count : MAX_WORDS] = NULL;
}

static bool run_words(struct words *words, struct reply *reply, bool on_worker)
{
    const struct command *command = find_command(words->word[0]);
    if (!command) {
        reply_add(reply, "unknown command %s; try help", words->word[0]);
        return false;
    }
    int arguments = words->count - 1;
    if (arguments < command->min_words || arguments > command->max_words) {
        reply_add(reply, "usage: %s", command->usage);
        return false;
    }
    if ((command->flags & ON_MAIN) && on_worker) {
        reply_add(reply, "%s works on the main thread only", command->name);
        return false;
    }
    if ((command->flags & NEEDS_API) && !api.alloc) {
        reply_add(reply, "no library yet: load PATH first");
        return false;
    }
    return command->run(words, reply);
}

bool run_line_quietly(char *line, struct reply *reply, bool on_worker)
{
    line += strspn(line, BLANKS);
    if (*line == '@') {
        char *name = line + 1;
        line = name + strcspn(name, BLANKS);
        if (*line)
            *line++ = '\0';
        if (on_worker) {
            reply_add(reply, "@%s works on the main thread only", name);
            return false;
        }
        return run_on_worker(name, line, reply);
    }
    struct words words;
    split(line, &words);
    bool ok = false;
    if (words.count)
        ok = run_words(&words, reply, on_worker);
    else
        reply_add(reply, "empty command");
    free(words.rest);
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

static bool run_help(struct words *words, struct reply *reply)
{
    (void)words;
    for (int group = 0; group < GROUPS; group++)
        for (const struct command *row = command_groups[group]; row->name; row++)
            reply_add(reply, "%s%s", reply->length ? "; " : "", row->usage);
    return true;
}

static bool run_status(struct words *words, struct reply *reply)
{
    (void)words;
    char text[TRUTH_TEXT_BYTES];
    reply_add(reply, "%s", truth_text(text, sizeof text, false));
    return true;
}

static bool run_exit(struct words *words, struct reply *reply)
{
    uint64_t code = 0;
    if (!parse_optional(words, 1, 255, &code, reply))
        return false;
    exiting = true;
    exit_code = (int)code;
    return true;
}

const struct command main_commands[] = {
    { "help", "help", 0, 0, 0, run_help },
    { "status", "status", 0, 0, 0, run_status },
    { "exit", "exit [CODE]", 0, 1, ON_MAIN, run_exit },
    { .name = NULL },
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
