//! Aligned columns in a box.
//!
//! On a terminal a long result shows its first and last rows. In a pipe or a file no row and no
//! character is left out: widths are taken from the first rows, and a later value that is wider
//! pushes its line out rather than being cut.

use std::collections::VecDeque;
use std::io::Write;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use thalweg_base::text;
use unicode_width::UnicodeWidthStr;

use super::cells::{Cells, is_number};
use super::fit::{Column, Layout, layout, pad};
use super::sink::Sink;
use super::{Look, ResultWriter};
use crate::failure::Outcome;

/// Rows held back to find the widths when all rows are to be shown.
const ROWS_MEASURED_MAX: usize = 1000;

type Row = Vec<String>;

pub struct Table<'s> {
    sink: &'s mut Sink,
    look: Look,
    names: Row,
    right: Vec<bool>,
    /// Not written yet.
    head: Vec<Row>,
    /// The last rows seen, when the middle is left out.
    tail: VecDeque<Row>,
    /// Fixed once the header is written.
    layout: Option<Layout>,
    rows: u64,
    counted: bool,
}

impl<'s> Table<'s> {
    pub fn new(schema: &SchemaRef, look: Look, sink: &'s mut Sink) -> Self {
        Table {
            sink,
            look,
            names: schema.fields().iter().map(|f| f.name().replace('\n', " ")).collect(),
            right: schema.fields().iter().map(|f| is_number(f.data_type())).collect(),
            head: Vec::new(),
            tail: VecDeque::new(),
            layout: None,
            rows: 0,
            counted: true,
        }
    }

    /// Columns whose text is a number although their type is not: catalog listings.
    pub fn right_aligned(mut self, right: Vec<bool>) -> Self {
        self.right = right;
        self
    }

    /// Leaves out the number of rows below the table.
    pub fn uncounted(mut self) -> Self {
        self.counted = false;
        self
    }

    fn push(&mut self, row: Row) -> Outcome {
        self.rows += 1;
        let Some(rows_max) = self.look.rows_max else {
            self.head.push(row);
            if self.layout.is_some() || self.head.len() == ROWS_MEASURED_MAX {
                self.write_head()?;
            }
            return Ok(());
        };
        if self.head.len() < rows_max.div_ceil(2) {
            self.head.push(row);
        } else {
            self.tail.push_back(row);
            if self.tail.len() > rows_max / 2 {
                self.tail.pop_front();
            }
        }
        Ok(())
    }

    fn write_head(&mut self) -> Outcome {
        if self.layout.is_none() {
            let columns: Vec<_> = (0..self.names.len()).map(|c| self.measure(c)).collect();
            let layout = self.layout.insert(layout(&columns, self.look.width));
            rule(self.sink, layout, ["┌", "┬", "┐"])?;
            line(self.sink, layout, &self.right, &self.names)?;
            rule(self.sink, layout, ["├", "┼", "┤"])?;
        }
        if let Some(layout) = &self.layout {
            for row in self.head.drain(..) {
                line(self.sink, layout, &self.right, &row)?;
            }
        }
        Ok(())
    }

    fn measure(&self, column: usize) -> Column {
        let widest = |row: &Row| row[column].split('\n').map(|l| l.width()).max().unwrap_or(0);
        let rows = self.head.iter().chain(&self.tail);
        let width = rows.map(widest).max().unwrap_or(0).max(self.names[column].width());
        Column { width: width.max(1), whole: self.right[column] }
    }
}

impl ResultWriter for Table<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Outcome {
        let cells = Cells::new(batch)?;
        // Rows that can only end up in the left-out middle are counted, not formatted.
        let mut row = 0;
        while row < batch.num_rows() {
            if let Some(rows_max) = self.look.rows_max
                && self.head.len() == rows_max.div_ceil(2)
            {
                let skip = (batch.num_rows() - row).saturating_sub(rows_max / 2);
                self.rows += skip as u64;
                row += skip;
                if row == batch.num_rows() {
                    break;
                }
            }
            let shown = (0..cells.columns()).map(|c| cells.shown(c, row));
            self.push(shown.collect::<Outcome<_>>()?)?;
            row += 1;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        let shown = self.head.len() + self.tail.len();
        let left_out = self.look.rows_max.is_some() && (shown as u64) < self.rows;
        self.write_head()?;
        let this = *self;
        let Some(layout) = &this.layout else { return Ok(()) };
        if left_out {
            let dots = vec!["⋮".to_string(); this.names.len()];
            line(this.sink, layout, &this.right, &dots)?;
        }
        for row in &this.tail {
            line(this.sink, layout, &this.right, row)?;
        }
        rule(this.sink, layout, ["└", "┴", "┘"])?;
        if !this.counted {
            return Ok(());
        }
        let mut label = rows_label(this.rows);
        if left_out {
            label.push_str(&format!(" ({shown} shown)"));
        }
        let columns = layout.shown.iter().flatten().count();
        if columns < this.names.len() {
            label.push_str(&format!(", {} columns ({columns} shown)", this.names.len()));
        }
        writeln!(this.sink, "{label}")?;
        Ok(())
    }
}

pub fn rows_label(rows: u64) -> String {
    format!("{} {}", text::count(rows), if rows == 1 { "row" } else { "rows" })
}

fn rule(sink: &mut Sink, layout: &Layout, [left, middle, right]: [&str; 3]) -> Outcome {
    let widths = layout.shown.iter().map(|c| c.map_or(1, |(_, width)| width));
    let dashes: Vec<_> = widths.map(|width| "─".repeat(width + 2)).collect();
    writeln!(sink, "{left}{}{right}", dashes.join(middle))?;
    Ok(())
}

/// One row; as many lines as its tallest value.
fn line(sink: &mut Sink, layout: &Layout, right: &[bool], row: &Row) -> Outcome {
    let shown = layout.shown.iter().flatten();
    let height = shown.map(|(c, _)| row[*c].split('\n').count()).max().unwrap_or(1);
    for i in 0..height {
        for column in &layout.shown {
            match column {
                Some((c, width)) => {
                    let part = row[*c].split('\n').nth(i).unwrap_or("");
                    write!(sink, "│ {} ", pad_or_push(part, *width, right[*c], layout))?;
                }
                None => write!(sink, "│ … ")?,
            }
        }
        writeln!(sink, "│")?;
    }
    Ok(())
}

fn pad_or_push(part: &str, width: usize, right: bool, layout: &Layout) -> String {
    if layout.cuts { pad(part, width, right) } else { pad(part, width.max(part.width()), right) }
}
