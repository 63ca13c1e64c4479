//! R3: when everybody has left and every term has had its time, the store holds nothing.

use super::{Expectations, History, Violation, What};

/// Looks for what is left at the end.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, _: &Expectations) -> Result<(), Violation> {
    for (at, event) in history.events().iter().enumerate() {
        let What::End { holders, waiters, listeners } = event.what else { continue };
        if holders + waiters + listeners > 0 {
            let what = format!(
                "at the end the store still has {holders} holders, {waiters} waiters, {listeners} listeners"
            );
            return Err(Violation::new(at, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::script::{Script, expectations};
    use super::*;

    #[test]
    fn an_empty_store_is_sound_and_another_is_not() {
        let end = |holders, waiters, listeners| {
            let mut script = Script::new();
            script.event(0, 9, What::End { holders, waiters, listeners });
            check(&script.history(), &expectations()).is_ok()
        };
        assert!(end(0, 0, 0));
        assert!(!end(1, 0, 0) && !end(0, 1, 0) && !end(0, 0, 1));
    }
}
