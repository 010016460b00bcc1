//! The section about what runs on pipelines.

use super::super::coverage::{self, Coverage};
use super::{Page, Table};

impl Page {
    pub(super) fn coverage(&mut self, coverage: &Coverage) {
        self.section(&coverage.title(), &coverage.remark());
        let mut table = Table::new(&coverage::HEADER);
        coverage.rows().into_iter().for_each(|row| table.row(row));
        self.table("All queries", &table, false);
        self.end_section();
    }
}
