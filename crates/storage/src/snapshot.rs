//! What one query sees: an immutable tree of schemas, tables, views and external tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_base::{SnapshotId, TableId};

use crate::table::{Table, TableExtent};

/// The schema that every database has.
pub const PUBLIC: &str = "public";

/// One committed state of the whole database. Holding the `Arc` pins it: the extents it names
/// stay readable, whatever is dropped or replaced meanwhile.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub id: SnapshotId,
    /// When it was committed: milliseconds since 1970.
    pub time_ms: u64,
    pub schemas: BTreeMap<String, Arc<Schema>>,
    /// Settings of the database as a whole.
    pub properties: BTreeMap<String, String>,
}

/// A namespace. The three kinds of relation share it: a name has one meaning.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub name: String,
    pub tables: BTreeMap<String, Arc<Table>>,
    pub views: BTreeMap<String, Arc<View>>,
    pub externals: BTreeMap<String, Arc<External>>,
}

#[derive(Clone, Debug)]
pub struct View {
    pub name: String,
    /// The query, as it was written.
    pub sql: String,
}

/// A table whose data is not ours: files queried in place.
#[derive(Clone, Debug)]
pub struct External {
    pub name: String,
    /// The whole CREATE EXTERNAL TABLE statement, to be run again at each start.
    pub sql: String,
}

/// What a name in a schema stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationKind {
    Table,
    View,
    External,
}

impl RelationKind {
    pub fn name(self) -> &'static str {
        match self {
            RelationKind::Table => "table",
            RelationKind::View => "view",
            RelationKind::External => "external table",
        }
    }
}

impl Schema {
    pub fn new(name: impl Into<String>) -> Self {
        Schema { name: name.into(), ..Schema::default() }
    }

    pub fn relation(&self, name: &str) -> Option<RelationKind> {
        if self.tables.contains_key(name) {
            Some(RelationKind::Table)
        } else if self.views.contains_key(name) {
            Some(RelationKind::View)
        } else if self.externals.contains_key(name) {
            Some(RelationKind::External)
        } else {
            None
        }
    }

    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.views.is_empty() && self.externals.is_empty()
    }
}

impl Snapshot {
    /// Of a database in which nothing is yet, not even a schema.
    pub(crate) fn empty() -> Self {
        Snapshot {
            id: SnapshotId(0),
            time_ms: 0,
            schemas: BTreeMap::new(),
            properties: BTreeMap::new(),
        }
    }

    pub fn table(&self, schema: &str, name: &str) -> Option<&Arc<Table>> {
        self.schemas.get(schema)?.tables.get(name)
    }

    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables().find(|t| t.id == id)
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.schemas.values().flat_map(|s| s.tables.values())
    }

    /// Tables with the names of their schemas.
    pub fn named_tables(&self) -> impl Iterator<Item = (&str, &Arc<Table>)> {
        self.schemas.iter().flat_map(|(name, s)| s.tables.values().map(move |t| (name.as_str(), t)))
    }

    pub(crate) fn extents(&self) -> impl Iterator<Item = &TableExtent> {
        self.tables().flat_map(|t| &t.extents)
    }

    pub fn stored_bytes(&self) -> u64 {
        self.tables().map(|t| t.stored_bytes()).sum()
    }
}
