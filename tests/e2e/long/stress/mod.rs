//! Load: many concurrent calls, allocations, launches, threads and processes, all exact.

mod allocations;
mod launches;
mod processes;
mod programs;
mod races;
