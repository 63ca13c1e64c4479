//! What becomes of a push on its way to the waiter.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure::engine::{Wake, Woken};
use tokio::time::{sleep, timeout};

use super::Line;

/// What happens to one waiter's push, drawn when the claim is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// It comes at once.
    Straight,
    /// The store counts it as delivered, and it never comes.
    Lost,
    /// It comes up to so much later.
    Late(Duration),
    /// After so long nobody is there whom the store could tell.
    Deaf(Duration),
}

impl Line {
    pub(super) fn draw_way(&self) -> Way {
        let mut state = self.lock();
        let faults = state.faults.clone();
        let (lost, late, deaf) =
            (state.chance(faults.lost_push), state.chance(faults.late_push), state.chance(faults.deaf));
        let span = state.span(faults.limit / 4);
        match (lost, late, deaf) {
            (true, _, _) => Way::Lost,
            (_, true, _) => Way::Late(span + Duration::from_millis(1)),
            (_, _, true) => Way::Deaf(span),
            _ => Way::Straight,
        }
    }
}

/// How long a subscription lives on whose client never learned that it waits.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The wake as it reaches the waiter. A waiter that is cut off when the push comes misses it.
pub(super) fn through(line: Arc<Line>, wake: Wake, way: Way) -> Wake {
    match way {
        Way::Straight => Wake::new(async move {
            let woken = wake.await;
            deliver(&line, woken).await
        }),
        Way::Lost => {
            // Somebody listens, so it counts as delivered; also when the answer that carries this
            // wake is lost, or the waiter stops to listen.
            tokio::spawn(timeout(FORGOTTEN, wake));
            Wake::never()
        }
        Way::Late(span) => Wake::new(late(line, wake, span)),
        Way::Deaf(span) => Wake::new(async move {
            let mut wake = wake;
            match timeout(span, &mut wake).await {
                Ok(woken) => deliver(&line, woken).await,
                Err(_) => {
                    drop(wake);
                    std::future::pending().await
                }
            }
        }),
    }
}

/// Looked at from time to time only. As long as it was not looked at, the push is on its way: whoever
/// stops to listen meanwhile lets the store take it back.
async fn late(line: Arc<Line>, mut wake: Wake, span: Duration) -> Woken {
    loop {
        if let Some(woken) = look(&mut wake).await {
            return deliver(&line, woken).await;
        }
        sleep(span).await;
    }
}

async fn deliver(line: &Line, woken: Woken) -> Woken {
    if line.is_off() { std::future::pending().await } else { woken }
}

async fn look(wake: &mut Wake) -> Option<Woken> {
    std::future::poll_fn(|cx| match Pin::new(&mut *wake).poll(cx) {
        Poll::Ready(woken) => Poll::Ready(Some(woken)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
