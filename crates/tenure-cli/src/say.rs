//! What `tenure` says: one line each, on standard error, after its name.

use std::io::Write;

use crate::exit::Exit;

/// Says it. That nobody can hear it is no reason to end.
pub(crate) fn line(what: &str) {
    let _ = writeln!(std::io::stderr(), "tenure: {what}");
}

/// Says why `tenure` ends as it does.
pub(crate) fn because(exit: Exit, what: &str) -> Exit {
    line(what);
    exit
}
