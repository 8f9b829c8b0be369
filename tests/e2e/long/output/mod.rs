//! Owners of output files, and links that other users have planted in their place.

mod ownership;
mod shared;
mod symlinks;
