//! Tests that `scripts/test-long.sh` runs: attacks, floods and races, other ways to attach, and faults round by round.
//! They take long, or need the machine for themselves.

mod attach;
mod attacks;
mod calls;
mod copies;
mod explain;
pub(crate) mod faults;
mod flood;
mod hostile;
mod incidents;
mod kernels;
mod latency;
mod output;
mod python_hostile;
mod random;
mod recording;
mod serve;
mod stacks;
mod stress;
mod tensor_attach;
mod tensor_hostile;
mod tensor_losses;
mod top;
