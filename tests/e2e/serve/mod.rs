//! `gpuprobe serve`: what it says, to whom, and that clients disturb nothing.

mod access;
mod clients;
mod containers;
mod encryption;
mod hosts;
mod otlp;
mod otlp_prometheus;
mod profiles;
mod prometheus;
mod push;
mod values;
