//! Messages to clients, into bytes.

use bytes::{BufMut, BytesMut};
use thalweg_base::Error;
use thalweg_engine::{Notice, TransactionStatus};

/// What is to be sent. Each message is a type, a length and a body; the length is written last.
#[derive(Default)]
pub struct Out(pub BytesMut);

/// A column of a result as it is announced.
pub struct Field<'a> {
    pub name: &'a str,
    pub oid: u32,
    /// Bytes of a value; −1: it varies.
    pub size: i16,
    pub modifier: i32,
    /// 0: text, 1: binary.
    pub format: i16,
}

impl Out {
    pub fn message(&mut self, kind: u8, body: impl FnOnce(&mut BytesMut)) {
        self.0.put_u8(kind);
        let start = self.0.len();
        self.0.put_u32(0);
        body(&mut self.0);
        let length = (self.0.len() - start) as u32;
        self.0[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    pub fn authentication_ok(&mut self) {
        self.message(b'R', |b| b.put_u32(0));
    }

    pub fn sasl_mechanisms(&mut self, mechanisms: &[&str]) {
        self.message(b'R', |b| {
            b.put_u32(10);
            mechanisms.iter().for_each(|m| text(b, m));
            b.put_u8(0);
        });
    }

    /// `last`: the final message of the exchange.
    pub fn sasl(&mut self, data: &[u8], last: bool) {
        self.message(b'R', |b| {
            b.put_u32(if last { 12 } else { 11 });
            b.put_slice(data);
        });
    }

    pub fn negotiate_version(&mut self, options: &[String]) {
        self.message(b'v', |b| {
            b.put_u32(0);
            b.put_u32(options.len() as u32);
            options.iter().for_each(|o| text(b, o));
        });
    }

    pub fn parameter(&mut self, name: &str, value: &str) {
        self.message(b'S', |b| {
            text(b, name);
            text(b, value);
        });
    }

    pub fn key(&mut self, process: i32, secret: i32) {
        self.message(b'K', |b| {
            b.put_i32(process);
            b.put_i32(secret);
        });
    }

    pub fn ready(&mut self, status: TransactionStatus) {
        self.message(b'Z', |b| {
            b.put_u8(match status {
                TransactionStatus::Idle => b'I',
                TransactionStatus::Open => b'T',
                TransactionStatus::Failed => b'E',
            });
        });
    }

    /// A message without a body.
    pub fn bare(&mut self, kind: u8) {
        self.message(kind, |_| {});
    }

    pub fn parse_complete(&mut self) {
        self.bare(b'1');
    }

    pub fn bind_complete(&mut self) {
        self.bare(b'2');
    }

    pub fn close_complete(&mut self) {
        self.bare(b'3');
    }

    pub fn no_data(&mut self) {
        self.bare(b'n');
    }

    pub fn empty_query(&mut self) {
        self.bare(b'I');
    }

    pub fn portal_suspended(&mut self) {
        self.bare(b's');
    }

    pub fn complete(&mut self, tag: &str) {
        self.message(b'C', |b| text(b, tag));
    }

    pub fn parameter_types(&mut self, oids: &[u32]) {
        self.message(b't', |b| {
            b.put_u16(oids.len() as u16);
            oids.iter().for_each(|oid| b.put_u32(*oid));
        });
    }

    pub fn row_description<'a>(&mut self, fields: impl ExactSizeIterator<Item = Field<'a>>) {
        self.message(b'T', |b| {
            b.put_u16(fields.len() as u16);
            for field in fields {
                text(b, field.name);
                // Which table and column it is of is not known.
                b.put_u32(0);
                b.put_u16(0);
                b.put_u32(field.oid);
                b.put_i16(field.size);
                b.put_i32(field.modifier);
                b.put_i16(field.format);
            }
        });
    }

    /// `kind`: `G` asks for data, `H` announces it.
    pub fn copy(&mut self, kind: u8, binary: bool, columns: usize) {
        self.message(kind, |b| {
            b.put_u8(binary.into());
            b.put_u16(columns as u16);
            (0..columns).for_each(|_| b.put_u16(binary.into()));
        });
    }

    pub fn copy_data(&mut self, data: &[u8]) {
        self.message(b'd', |b| b.put_slice(data));
    }

    pub fn copy_done(&mut self) {
        self.bare(b'c');
    }

    pub fn notices(&mut self, notices: &[Notice]) {
        for notice in notices {
            let severity = notice.severity.name();
            self.report(b'N', severity, notice.code, &notice.message, |field| {
                if let Some(hint) = &notice.hint {
                    field(b'H', hint);
                }
            });
        }
    }

    /// `fatal`: the connection ends with it.
    pub fn error(&mut self, e: &Error, fatal: bool) {
        let severity = if fatal { "FATAL" } else { "ERROR" };
        self.report(b'E', severity, e.sqlstate(), e.message(), |field| {
            if let Some(detail) = e.detail_text() {
                field(b'D', detail);
            }
            if let Some(hint) = e.hint_text() {
                field(b'H', hint);
            }
            if let Some(position) = e.position() {
                field(b'P', &position.to_string());
            }
            // By the function in PostgreSQL, drivers know that they have to prepare the statement anew.
            if e.message() == RESULT_CHANGED {
                field(b'R', "RevalidateCachedQuery");
            }
        });
    }

    /// An error or a notice: `kind`. `rest` writes the fields that not all have.
    fn report(
        &mut self,
        kind: u8,
        severity: &str,
        code: &str,
        message: &str,
        rest: impl FnOnce(&mut dyn FnMut(u8, &str)),
    ) {
        self.message(kind, |b| {
            let mut field = |code: u8, value: &str| {
                b.put_u8(code);
                text(b, value);
            };
            field(b'S', severity);
            field(b'V', severity);
            field(b'C', code);
            field(b'M', message);
            rest(&mut field);
            b.put_u8(0);
        });
    }
}

/// Of a prepared statement whose columns are others than the client has been told.
pub const RESULT_CHANGED: &str = "cached plan must not change result type";

/// Ended by a zero; one in it would be taken for its end.
fn text(buffer: &mut BytesMut, text: &str) {
    let text = text.split('\0').next().unwrap_or_default();
    buffer.put_slice(text.as_bytes());
    buffer.put_u8(0);
}
