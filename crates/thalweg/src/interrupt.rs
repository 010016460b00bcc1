//! Ctrl-C: the first one cancels what runs, the second one ends the process. In the interactive
//! shell it only ever cancels: pressed a moment too late, it must not take the shell along.
//!
//! A thread of its own waits for the signal, so that a query is cancelled even while the main
//! thread is stuck writing into a full pipe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use thalweg_base::{Error, Kind};

type Cancel = Box<dyn Fn() + Send>;

static CANCEL: Mutex<Option<Cancel>> = Mutex::new(None);
static PRESSED: AtomicBool = AtomicBool::new(false);
static ONLY_CANCELS: AtomicBool = AtomicBool::new(false);

/// While it lives, Ctrl-C calls `cancel` instead of ending the process.
pub struct Watch(());

/// From now on Ctrl-C never ends the process.
pub fn never_exit() {
    ONLY_CANCELS.store(true, Ordering::Relaxed);
    start();
}

pub fn watch(cancel: impl Fn() + Send + 'static) -> Watch {
    start();
    PRESSED.store(false, Ordering::Relaxed);
    *slot() = Some(Box::new(cancel));
    Watch(())
}

impl Watch {
    pub fn pressed(&self) -> bool {
        PRESSED.load(Ordering::Relaxed)
    }

    /// However the cancelled work reported its end, the user sees the one word.
    pub fn explain(&self, error: Error) -> Error {
        if self.pressed() && error.kind() == Kind::Cancelled { cancelled() } else { error }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *slot() = None;
    }
}

pub fn cancelled() -> Error {
    Error::cancelled("cancelled")
}

fn slot() -> MutexGuard<'static, Option<Cancel>> {
    // The slot is replaced as a whole: a panic elsewhere cannot leave it half written.
    CANCEL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start() {
    static START: Once = Once::new();
    START.call_once(listen);
}

/// Without the thread Ctrl-C keeps its default, ending the process: safe for the database, which
/// survives a kill at any byte.
fn listen() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
        return;
    };
    let _ = std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                let again = PRESSED.swap(true, Ordering::Relaxed);
                let only_cancels = ONLY_CANCELS.load(Ordering::Relaxed);
                match &*slot() {
                    Some(cancel) if !again || only_cancels => cancel(),
                    _ if only_cancels => {}
                    _ => std::process::exit(i32::from(Kind::Cancelled.exit_code())),
                }
            }
        })
    });
}
