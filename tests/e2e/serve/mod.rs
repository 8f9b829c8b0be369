//! `gpuprobe serve`: what it says, to whom, and that clients disturb nothing.

mod access;
mod clients;
mod encryption;
mod profiles;
mod prometheus;
mod values;
