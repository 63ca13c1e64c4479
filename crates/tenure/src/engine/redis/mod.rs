//! One Redis server.

use std::sync::Arc;

use crate::background::Background;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};

/// Opens the engine that a URL names.
pub async fn open(_url: &str, _background: &Background) -> Result<Arc<dyn Engine>> {
    Err(Error::new(ErrorKind::Unsupported, "the redis engine is not in this build yet"))
}
