//! A `rota serve` that ends with the benchmark.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Result;

/// A running server, its address and its token.
pub struct Server {
    /// The process, killed when this value is dropped.
    pub child: Child,
    /// Its process id.
    pub pid: u32,
    /// `127.0.0.1:PORT`.
    pub address: String,
    /// The token that requests must carry.
    pub token: String,
}

impl Server {
    /// Starts `rota serve` in a folder, on a free port of the loopback.
    pub fn start(rota: &Path, folder: &Path, store: &str) -> Result<Self> {
        let mut command = rota_command(rota, folder, store, &["serve", "--listen", "127.0.0.1:0"]);
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let mut errors = BufReader::new(child.stderr.take().ok_or("no pipe")?);
        errors.read_line(&mut line)?;
        // The pipe must be drained, or a server that logs would wait.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let place =
            line.trim().strip_prefix("listening on http://").and_then(|rest| rest.split_once(", token in "));
        let Some((address, file)) = place else {
            drop(child.kill());
            drop(child.wait());
            return Err(format!("rota serve did not start: {line}").into());
        };
        let token = std::fs::read_to_string(file)?.trim().to_owned();
        Ok(Self { pid: child.id(), child, address: address.to_owned(), token })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A `rota` command on a store, in a folder, that takes nothing else from the caller's environment.
pub fn rota_command(rota: &Path, folder: &Path, store: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(rota);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.as_encoded_bytes().starts_with(b"ROTA_")) {
        command.env_remove(name);
    }
    command.env("ROTA_STORE", store);
    command
}
