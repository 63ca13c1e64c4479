//! What the server's error replies mean.

use crate::error::{Error, ErrorKind};

/// An error for a refusal of the server. In a refusal nothing took effect, except where a script
/// stopped for a reason that is not known here.
pub(super) fn refusal(text: &str) -> Error {
    let known = text.split(|c: char| !c.is_ascii_uppercase()).find_map(known);
    let cannot_run = text.contains("can't run this command") || text.contains("can't access");
    let (kind, advice) = match known {
        Some(found) => found,
        None if cannot_run => (ErrorKind::Denied, GRANT),
        None => {
            return Error::new(ErrorKind::Internal, format!("the server refused: {}", text.escape_debug()))
                .maybe();
        }
    };
    let error = Error::new(kind, format!("the server refused: {}", text.escape_debug()));
    if advice.is_empty() { error } else { error.advice(advice) }
}

const GRANT: &str = "give the user the rights named in docs/engines/redis.md";

fn known(code: &str) -> Option<(ErrorKind, &'static str)> {
    Some(match code {
        "NOAUTH" | "WRONGPASS" => (ErrorKind::Denied, "check user and password"),
        "NOPERM" => (ErrorKind::Denied, GRANT),
        "DENIED" => (ErrorKind::Denied, "the server is in protected mode: set a password or bind an address"),
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "UNKILLABLE" => {
            (ErrorKind::Unavailable, "try again shortly")
        }
        "MISCONF" => (ErrorKind::Unavailable, "the server cannot save its data: see its log"),
        "OOM" => (ErrorKind::Unavailable, "the server is out of memory"),
        "READONLY" => (ErrorKind::Unavailable, "this is a replica: connect to the primary"),
        "NOREPLICAS" => (ErrorKind::Unavailable, "the server has too few replicas to accept writes"),
        "WRONGTYPE" => (ErrorKind::NotALock, "the key was left alone"),
        "MOVED" | "ASK" | "CROSSSLOT" => {
            (ErrorKind::Unsupported, "this engine is for one server, not for a cluster")
        }
        _ => return None,
    })
}

/// Whether the server does not know a script by its hash, so that nothing was run.
pub(super) fn is_no_script(text: &str) -> bool {
    text.starts_with("NOSCRIPT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_a_kind_and_are_definite() {
        for (text, kind) in [
            ("WRONGPASS invalid username-password pair or user is disabled.", ErrorKind::Denied),
            ("NOPERM this user has no permissions to run the 'set' command", ErrorKind::Denied),
            (
                "ERR The user executing the script can't run this command or subcommand script",
                ErrorKind::Denied,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Unavailable),
            (
                "ERR Error running script (call to f_ab): @user_script:8: @user_script: 8: -OOM command not allowed",
                ErrorKind::Unavailable,
            ),
            ("MISCONF Redis is configured to save RDB snapshots", ErrorKind::Unavailable),
            ("READONLY You can't write against a read only replica.", ErrorKind::Unavailable),
        ] {
            let error = refusal(text);
            assert_eq!(error.kind(), kind, "{text}");
            assert!(!error.may_have_taken_effect(), "{text}");
        }
        let unknown = refusal("ERR something new");
        assert_eq!(unknown.kind(), ErrorKind::Internal);
        assert!(unknown.may_have_taken_effect());
    }
}
