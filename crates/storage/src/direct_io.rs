//! Whether reads of a local disk pass the system's page cache.

/// Whether chunks on a disk of this machine are read past the system's page cache (`O_DIRECT`), if it
/// does not have them already and the file system can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// As long as the cache of decoded chunks has room: what is in it is not read again, and a second
    /// copy would cost memory, and the time to make it.
    #[default]
    Auto,
    On,
    /// For processes that end soon: the next one finds in the page cache what this one has read.
    Off,
}
