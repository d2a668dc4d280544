//! Output with a cap: the beginning is kept, the end is kept, what lies between is counted and left out.

use std::io::Write;

use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of the end is kept where a cap was reached, and how much of it feedback is taken from.
pub const TAIL_BYTES: usize = 16 * 1_024;

/// Where output goes.
pub struct Capped<W> {
    to: W,
    left: u64,
    left_out: u64,
    tail: Vec<u8>,
}

impl<W: Write> Capped<W> {
    /// Keeps so many bytes of the beginning.
    pub fn new(to: W, cap: u64) -> Self {
        Self { to, left: cap, left_out: 0, tail: Vec::new() }
    }

    /// Takes more of it.
    pub fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let fits = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let (kept, over) = bytes.split_at(fits);
        self.to.write_all(kept)?;
        self.left -= fits as u64;
        self.left_out += over.len() as u64;
        // Cut only now and then: a flood of output is copied, not moved about.
        if self.tail.len() > 8 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        Ok(())
    }

    /// Writes what is left to write.
    pub fn finish(mut self) -> std::io::Result<()> {
        let tail = &self.tail[self.tail.len().saturating_sub(TAIL_BYTES)..];
        if self.left_out > 0 {
            let shown = usize::try_from(self.left_out).unwrap_or(usize::MAX).min(tail.len());
            let missing = self.left_out - shown as u64;
            if missing > 0 {
                self.to.write_all(format!("\n[... {missing} bytes left out ...]\n").as_bytes())?;
            }
            self.to.write_all(&tail[tail.len() - shown..])?;
        }
        self.to.flush()
    }
}

/// Reads a stream to its end, piece by piece.
pub async fn drain(
    mut from: impl AsyncRead + Unpin,
    mut each: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1_024];
    loop {
        match from.read(&mut buffer).await? {
            0 => return Ok(()),
            count => each(&buffer[..count])?,
        }
    }
}

/// The last line that has anything in it.
pub fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests {
    use super::*;

    fn kept(cap: u64, pieces: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut capped = Capped::new(&mut file, cap);
        for piece in pieces {
            capped.take(piece).unwrap();
        }
        capped.finish().unwrap();
        file
    }

    #[test]
    fn everything_fits() {
        assert_eq!(kept(10, &[b"hello", b" you"]), b"hello you");
    }

    #[test]
    fn the_middle_is_left_out() {
        let long = vec![b'x'; 100_000];
        let text = String::from_utf8(kept(10, &[b"0123456789", &long, b"the end"])).unwrap();
        assert!(text.starts_with("0123456789\n[... 83623 bytes left out ...]\nxxx"), "{}", &text[..60]);
        assert!(text.ends_with("xthe end"));
        assert!(text.len() < 17_000);
    }

    #[test]
    fn a_little_too_much_is_kept_whole() {
        assert_eq!(kept(4, &[b"abcdefgh"]), b"abcdefgh");
    }

    #[test]
    fn the_last_line() {
        assert_eq!(last_line("a\nb \n\n  \n"), Some("b"));
        assert_eq!(last_line(" \n"), None);
    }
}
