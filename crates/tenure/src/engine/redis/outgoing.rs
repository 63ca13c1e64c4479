//! What is on its way to a line.

use std::task::{Context, Poll};

use super::link::Writer;

/// Bytes that may wait for a line that takes no more. What is beyond stays unsent, and is told so.
pub(super) const MOST_UNSENT: usize = 1 << 20;

/// Bytes on their way to the line.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// All bytes that this line ever took, and ever was given.
    pub(super) taken: u64,
    pub(super) given: u64,
    unflushed: bool,
}

impl Outgoing {
    pub(super) fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether nothing is left to do for the line.
    pub(super) fn is_done(&self) -> bool {
        self.unsent() == 0 && !self.unflushed
    }

    pub(super) fn give(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.given += bytes.len() as u64;
    }

    /// Writes what the line takes.
    pub(super) fn poll(&mut self, writer: &mut Writer, cx: &mut Context<'_>) -> std::io::Result<()> {
        while self.unsent() > 0 {
            match writer.poll_write(cx, &self.bytes[self.sent..]) {
                Poll::Ready(Ok(0)) => return Err(std::io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => {
                    self.sent += count;
                    self.taken += count as u64;
                    self.unflushed = true;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        self.tidy();
        if self.unflushed
            && let Poll::Ready(result) = writer.poll_flush(cx)
        {
            self.unflushed = false;
            result?;
        }
        Ok(())
    }

    /// Writes what a line takes at once, from whatever thread.
    pub(super) fn write_now(&mut self, writer: &Writer) -> std::io::Result<()> {
        while self.unsent() > 0 {
            match writer.write_now(&self.bytes[self.sent..]) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    self.taken += count as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.tidy();
        Ok(())
    }

    fn tidy(&mut self) {
        if self.unsent() == 0 {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent >= MOST_UNSENT / 4 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }
}
