/* What the files of torchlike share. */
#ifndef STANDIN_TORCHLIKE_H
#define STANDIN_TORCHLIKE_H

#include "workload.h"

/* Adds a block under a name; several may have the same. Not thread-safe: for the thread that runs a
 * command. */
void tensor_keep(const char *name, void *address);

/* The commands of torchlike_stress.c. */
bool run_tchurn(struct words *words, struct reply *reply);
bool run_tflood(struct words *words, struct reply *reply);
bool run_trate(struct words *words, struct reply *reply);
bool run_ttold(struct words *words, struct reply *reply);
bool run_treport(struct words *words, struct reply *reply);
bool run_tgarbage(struct words *words, struct reply *reply);

/* Those of torchlike_chunks.c. */
bool run_tregion(struct words *words, struct reply *reply);
bool run_tchunk(struct words *words, struct reply *reply);

#endif
