//! Load: many calls, allocations, launches, threads and processes at once, all exact.

mod allocations;
mod launches;
mod processes;
mod programs;
mod races;
