//! `COPY … TO STDOUT`: rows as lines of text or CSV, or in PostgreSQL's binary form.

use bytes::{BufMut, BytesMut};
use futures::StreamExt;
use thalweg_base::{Error, Result};
use thalweg_engine::{ClientCopy, result_names};

use super::connection::{Connection, Stop};
use super::copy_in::{Form, Layout};
use super::encode::{Format, Rows};

/// Before the first row of the binary form: its signature, no flags, no extension.
pub const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

impl Connection {
    /// Returns the command's tag.
    pub async fn copy_out(&mut self, copy: &ClientCopy) -> Result<String, Stop> {
        let layout = Layout::new(copy)?;
        let session = self.session.clone();
        let answer = self.watched(session.query(&copy.query)).await?;
        // The query stands elsewhere in the client's text, and is spelled there as it likes.
        let mut answer = answer.map_err(Error::nowhere)?;
        let columns = answer.schema.fields().len();
        let binary = layout.form == Form::Binary;
        let formats = vec![if binary { Format::Binary } else { Format::Text }; columns];
        self.output.out.copy(b'H', binary, columns);
        let mut line = BytesMut::new();
        if binary {
            line.put_slice(SIGNATURE);
        } else if layout.header {
            let names = result_names(&copy.query, columns);
            for (i, (field, name)) in answer.schema.fields().iter().zip(&names).enumerate() {
                let name = name.as_ref().unwrap_or(field.name());
                layout.value(i, Some(name.as_bytes()), &mut line);
            }
            line.put_u8(b'\n');
        }
        let mut scratch = BytesMut::new();
        let mut count = 0_u64;
        while let Some(batch) = self.watched(answer.next()).await? {
            let batch = batch?;
            let mut row = 0;
            while row < batch.num_rows() {
                let rows = Rows::new(&batch, &formats)?;
                while row < batch.num_rows() && !self.output.is_full() {
                    if binary {
                        rows.values(row, &mut line);
                    } else {
                        let mut i = 0;
                        rows.each(row, &mut scratch, |value| {
                            layout.value(i, value, &mut line);
                            i += 1;
                        });
                        line.put_u8(b'\n');
                    }
                    self.output.out.copy_data(&line);
                    line.clear();
                    row += 1;
                    count += 1;
                }
                drop(rows);
                if self.output.is_full() {
                    self.flush().await?;
                }
            }
        }
        if binary {
            line.put_i16(-1);
        }
        // A header or signature that no row took along.
        if !line.is_empty() {
            self.output.out.copy_data(&line);
        }
        self.output.out.copy_done();
        Ok(format!("COPY {count}"))
    }
}
