//! `rota serve`: the verbs over HTTP, and the command line against it.

mod doors;
mod leases;
mod same_bytes;
