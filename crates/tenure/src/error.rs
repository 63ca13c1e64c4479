//! The one error of this crate.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::key::Key;

/// What a call answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure it is. More may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input was refused before any request: a key, a term, a URL.
    Invalid,
    /// This engine cannot do it soundly.
    Unsupported,
    /// The key holds something that is no lock. It was left alone.
    NotALock,
    /// The store refused the login, or a command that is needed.
    Denied,
    /// The store could not be reached, or did not answer in time.
    Unavailable,
    /// It was not granted within the wait.
    TimedOut,
    /// The lease was lost.
    Lost,
    /// A stated bound was reached, such as the longest queue.
    Full,
    /// The client was closed.
    Closed,
    /// The store answered something that it should not, or a bug of ours.
    Internal,
}

/// Why a call failed: the operation, the key and the engine concerned, what happened, whether the
/// request [may have taken effect](Error::may_have_taken_effect), and what to do.
///
/// That somebody else holds a lock is no error. Secrets never appear in one.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    maybe: bool,
    what: String,
    advice: Option<String>,
    operation: Option<&'static str>,
    key: Option<Key>,
    engine: Option<&'static str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error that says what happened. For authors of engines.
    #[must_use]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        Error(Arc::new(Inner {
            kind,
            maybe: false,
            what: what.into(),
            advice: None,
            operation: None,
            key: None,
            engine: None,
            source: None,
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Error {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Marks that the request may have reached the store and been carried out.
    #[must_use]
    pub fn maybe(self) -> Error {
        self.with(|inner| inner.maybe = true)
    }

    /// Adds what the reader should do about it.
    #[must_use]
    pub fn advice(self, advice: impl Into<String>) -> Error {
        self.with(|inner| inner.advice = Some(advice.into()))
    }

    /// Names the operation, unless one is named already.
    #[must_use]
    pub fn operation(self, operation: &'static str) -> Error {
        self.with(|inner| inner.operation = inner.operation.or(Some(operation)))
    }

    /// Names the operation that the user called, in place of the engine's own word for a part of it.
    pub(crate) fn called(self, operation: &'static str) -> Error {
        self.with(|inner| inner.operation = Some(operation))
    }

    /// Says something before what happened.
    pub(crate) fn prefixed(self, words: &str) -> Error {
        self.with(|inner| inner.what.insert_str(0, words))
    }

    /// Names the key, unless one is named already.
    #[must_use]
    pub fn key(self, key: &Key) -> Error {
        self.with(|inner| inner.key = inner.key.take().or_else(|| Some(key.clone())))
    }

    /// Names the engine, unless one is named already.
    #[must_use]
    pub fn engine(self, engine: &'static str) -> Error {
        self.with(|inner| inner.engine = inner.engine.or(Some(engine)))
    }

    /// Adds what caused it.
    #[must_use]
    pub fn source_error(self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.with(|inner| inner.source = Some(Arc::new(source)))
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the request may have reached the store and been carried out. `false` is certain.
    #[must_use]
    pub fn may_have_taken_effect(&self) -> bool {
        self.0.maybe
    }

    /// Whether the wait ended before the lock was granted.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.0.kind == ErrorKind::TimedOut
    }

    /// Whether the lease was lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.kind == ErrorKind::Lost
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        let mut subject = false;
        if let Some(operation) = inner.operation {
            f.write_str(operation)?;
            subject = true;
        }
        if let Some(key) = &inner.key {
            write!(f, "{}\"{}\"", if subject { " " } else { "" }, key.as_str().escape_debug())?;
            subject = true;
        }
        if let Some(engine) = inner.engine {
            write!(f, "{}on {engine}", if subject { " " } else { "" })?;
            subject = true;
        }
        write!(f, "{}{}", if subject { ": " } else { "" }, inner.what)?;
        if inner.maybe {
            f.write_str("; it may have taken effect")?;
        }
        if let Some(advice) = &inner.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        if let Some(source) = &self.0.source {
            write!(f, " (caused by: {source})")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_operation_key_engine_what_and_what_to_do() {
        let error = Error::new(ErrorKind::Unavailable, "the connection was cut before the answer came")
            .maybe()
            .advice("it will be undone")
            .operation("acquire")
            .key(&Key::new("orders/42").unwrap())
            .engine("redis");
        assert_eq!(
            error.to_string(),
            "acquire \"orders/42\" on redis: the connection was cut before the answer came; \
             it may have taken effect; it will be undone"
        );
        assert_eq!(error.clone().operation("release").to_string(), error.to_string());
    }
}
