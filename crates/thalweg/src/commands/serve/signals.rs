//! What the system asks of a server that runs, and what it is told.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{Receiver, channel};

use thalweg_base::{Error, Kind, Result};
use tokio::signal::unix::{SignalKind, signal};

use super::logs::Logs;

/// Tells once, by name, that the server is to end. SIGTERM or SIGINT; the second one ends the
/// process at once, which is safe for the database: it survives a kill at any byte. SIGHUP opens
/// the log anew.
pub fn listen(logs: Logs) -> Result<Receiver<&'static str>> {
    let cannot = |e| Error::io("cannot listen to signals", e);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(cannot)?;
    let (mut term, mut int, mut hup) = {
        let _within = runtime.enter();
        (
            signal(SignalKind::terminate()).map_err(cannot)?,
            signal(SignalKind::interrupt()).map_err(cannot)?,
            signal(SignalKind::hangup()).map_err(cannot)?,
        )
    };
    let (tell, told) = channel();
    let work = async move {
        let mut ending = false;
        loop {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
                _ = hup.recv() => {
                    logs.reopen();
                    continue;
                }
            };
            if ending {
                tracing::warn!("{name} again: ended at once");
                std::process::exit(i32::from(Kind::Cancelled.exit_code()));
            }
            ending = true;
            let _ = tell.send(name);
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || runtime.block_on(work))
        .map_err(cannot)?;
    Ok(told)
}

/// Tells systemd, if it started this process as a service of `Type=notify`: see sd_notify(3).
pub fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|s| !s.is_empty()) else { return };
    if let Err(e) = send(socket.as_bytes(), state) {
        tracing::warn!("systemd cannot be told {state}: {e}");
    }
}

/// A socket is a path, or after an `@` a name without a file.
fn send(socket: &[u8], state: &str) -> io::Result<()> {
    let address = match socket {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_hears_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let name = format!("thalweg-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let hidden = UnixDatagram::bind_addr(&address).unwrap();
        send(path.as_os_str().as_bytes(), "READY=1").unwrap();
        send(format!("@{name}").as_bytes(), "STOPPING=1").unwrap();
        let mut buffer = [0; 32];
        let n = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"READY=1");
        let n = hidden.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"STOPPING=1");
        assert!(send(b"/no/such/socket", "READY=1").is_err());
    }
}
