/*
 * The steps of a program on its command line: NAME[=NUMBER[,NUMBER]] ...
 * After each the program prints what it has done, as one JSON line; after
 * `wait` it goes on when a line comes on standard input.
 */
#ifndef GPUPROBE_TESTS_GPU_STEPS_H
#define GPUPROBE_TESTS_GPU_STEPS_H

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

/* The number after the `=` of a step, and further fields of its line. */
struct Step {
    long numbers[2];
    std::string extra;

    long number(int index, long fallback) const
    {
        return numbers[index] > 0 ? numbers[index] : fallback;
    }
};

struct StepRow {
    const char *name;
    void (*run)(Step &step); /* NULL for `wait` */
    bool makes_context;      /* needs device 0 selected where contexts are explicit */
};

struct Program {
    const char *name;
    void (*prepare_context)();
    void (*print)(const std::string &step, const std::string &extra);
};

/* If standard input is closed, nothing reads the output either. */
inline void wait_for_line(const Program &program)
{
    int byte;
    while ((byte = getchar()) != '\n')
        if (byte == EOF) {
            fprintf(stderr, "%s: standard input ended at a wait\n", program.name);
            exit(3);
        }
}

template <size_t COUNT>
void run_step(const Program &program, const StepRow (&table)[COUNT], const char *text)
{
    std::string name(text, strcspn(text, "="));
    for (const StepRow &row : table) {
        if (name != row.name)
            continue;
        Step step = { { 0, 0 }, "" };
        sscanf(text + name.size(), "=%ld,%ld", &step.numbers[0], &step.numbers[1]);
        if (row.makes_context)
            program.prepare_context();
        if (row.run)
            row.run(step);
        program.print(name, step.extra);
        if (!row.run)
            wait_for_line(program);
        return;
    }
    fprintf(stderr, "%s: unknown step %s\n", program.name, text);
    exit(2);
}

inline double now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

#endif
