//! Tests that `scripts/test-long.sh` runs: attacks, floods and races, other ways to attach, and faults round by round.
//! They take long, or need the machine for themselves.

mod attach;
mod attacks;
mod census;
mod copies;
pub(crate) mod faults;
mod flood;
mod hostile;
mod kernels;
mod latency;
mod output;
mod random;
mod recording;
mod serve;
mod stacks;
mod stress;
mod tensor_attach;
mod tensor_losses;
mod tensor_memory;
mod top;
mod verdicts;
