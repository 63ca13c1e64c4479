//! Where a message ends.

/// What a proxy has to know of a store's protocol.
pub trait Protocol: Send + Sync + 'static {
    /// How many bytes the first message of `bytes` has; `None` while it is incomplete.
    fn first(&self, bytes: &[u8]) -> Option<usize>;

    /// Whether a message of the server answers no request.
    fn is_push(&self, reply: &[u8]) -> bool;

    /// How many replies answer a request, if replies come in the order of requests; else 0.
    fn answers(&self, request: &[u8]) -> usize;
}

/// No protocol: whatever arrives together is a message. For TLS, and for stores without an own one.
#[derive(Clone, Copy, Debug)]
pub struct Opaque;

impl Protocol for Opaque {
    fn first(&self, bytes: &[u8]) -> Option<usize> {
        Some(bytes.len()).filter(|length| *length > 0)
    }

    fn is_push(&self, _reply: &[u8]) -> bool {
        false
    }

    fn answers(&self, _request: &[u8]) -> usize {
        0
    }
}

/// Redis' protocol, versions 2 and 3.
#[derive(Clone, Copy, Debug)]
pub struct Resp;

impl Protocol for Resp {
    fn first(&self, bytes: &[u8]) -> Option<usize> {
        value_length(bytes)
    }

    fn is_push(&self, reply: &[u8]) -> bool {
        // Version 3 has a type for them, but answers to SUBSCRIBE have that type too; in version 2
        // they are lists that begin with a word.
        let kind = reply.split(|byte| *byte == b'\n').nth(2).unwrap_or_default().trim_ascii();
        match reply.first() {
            Some(b'>') => !kind.ends_with(b"subscribe"),
            Some(b'*') => [&b"message"[..], b"pmessage", b"smessage"].contains(&kind),
            _ => false,
        }
    }

    fn answers(&self, request: &[u8]) -> usize {
        let mut words = request.split(|byte| *byte == b'\n').step_by(2);
        let count =
            words.next().and_then(|head| std::str::from_utf8(head.get(1..)?).ok()?.trim().parse().ok());
        let subscribes = words.next().is_some_and(|word| {
            let word = word.trim_ascii().to_ascii_uppercase();
            word.ends_with(b"SUBSCRIBE")
        });
        // One answer for each channel.
        if subscribes { count.map_or(1, |count: usize| count.saturating_sub(1).max(1)) } else { 1 }
    }
}

/// Walks over one value, nested ones included, with a count of what is still to come instead of
/// recursion.
fn value_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut missing: usize = 1;
    while missing > 0 {
        let end = at + bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
        let kind = *bytes.get(at)?;
        let number =
            std::str::from_utf8(bytes.get(at + 1..end)?).ok().and_then(|text| text.parse::<i64>().ok());
        at = end + 2;
        missing -= 1;
        // A negative length stands for nothing.
        let length = number.and_then(|number| usize::try_from(number).ok());
        match kind {
            b'$' | b'!' | b'=' => at += length.map_or(0, |length| length + 2),
            b'*' | b'~' | b'>' => missing += length.unwrap_or(0),
            b'%' | b'|' => missing += 2 * length.unwrap_or(0),
            _ => {}
        }
        // Attributes come before the value they belong to.
        if kind == b'|' {
            missing += 1;
        }
    }
    (at <= bytes.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_they_end() {
        for whole in [
            "+OK\r\n",
            ":12\r\n",
            "$5\r\na\r\nbc\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n$3\r\nGET\r\n*1\r\n:1\r\n",
            "%1\r\n+a\r\n:1\r\n",
            "_\r\n",
        ] {
            for cut in 0..whole.len() {
                assert_eq!(Resp.first(&whole.as_bytes()[..cut]), None, "{whole:?} cut at {cut}");
            }
            assert_eq!(Resp.first(format!("{whole}+x\r\n").as_bytes()), Some(whole.len()), "{whole:?}");
        }
    }

    #[test]
    fn pushes_are_told_from_answers() {
        assert!(Resp.is_push(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n"));
        assert!(Resp.is_push(b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n"));
        assert!(!Resp.is_push(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"));
        assert!(!Resp.is_push(b"+OK\r\n"));
        assert_eq!(Resp.answers(b"*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n"), 2);
        assert_eq!(Resp.answers(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"), 1);
    }
}
