//! Newtype ids, so that a query's number cannot be used as a task's.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A table, for its whole life: a dropped and re-created name gets a new id.
    TableId,
    /// One immutable file of chunks.
    ExtentId,
    /// One committed state of the catalog; they only grow.
    SnapshotId,
    /// One statement being run by one session.
    QueryId,
    /// One schedulable future of a query.
    TaskId,
}

/// A role keeps its number whatever it is called, and no other ever gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleId(pub u32);
