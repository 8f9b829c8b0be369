/* Address space beside that of the block table: for reservations, memory of other processes, and
 * graphs. Released ranges are reused first. All functions are thread-safe. */
#ifndef STANDIN_CUDA_SPACE_H
#define STANDIN_CUDA_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#define SPACE_STEP (2ull << 20) /* of addresses and of sizes */

/* `bytes` (any number but 0, rounded up) of unused addresses; 0: there are no
 * more. At `hint`, if that is free and not 0. */
uint64_t space_take(uint64_t bytes, uint64_t hint);
/* `bytes` as they were when the space was allocated. */
void space_release(uint64_t address, uint64_t bytes);

#endif
