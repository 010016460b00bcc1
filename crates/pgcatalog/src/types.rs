//! PostgreSQL's types, as far as clients meet them: numbers, names, arrays.

use sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, TimezoneInfo};
use thalweg_base::{Error, Result};

pub type Oid = u32;

macro_rules! types {
    ($($constant:ident = $oid:literal, $array:literal, $name:literal, $shown:literal;)*) => {
        $(pub const $constant: Oid = $oid;)*

        /// OID, OID of its array (0: none), `typname`, and how `format_type` shows it.
        const TYPES: &[(Oid, Oid, &str, &str)] = &[$(($oid, $array, $name, $shown),)*];
    };
}

types! {
    BOOL = 16, 1000, "bool", "boolean";
    BYTEA = 17, 1001, "bytea", "bytea";
    CHAR = 18, 1002, "char", "\"char\"";
    NAME = 19, 1003, "name", "name";
    INT8 = 20, 1016, "int8", "bigint";
    INT2 = 21, 1005, "int2", "smallint";
    INT2VECTOR = 22, 1006, "int2vector", "int2vector";
    INT4 = 23, 1007, "int4", "integer";
    REGPROC = 24, 1008, "regproc", "regproc";
    TEXT = 25, 1009, "text", "text";
    OID = 26, 1028, "oid", "oid";
    TID = 27, 1010, "tid", "tid";
    XID = 28, 1011, "xid", "xid";
    CID = 29, 1012, "cid", "cid";
    OIDVECTOR = 30, 1013, "oidvector", "oidvector";
    JSON = 114, 199, "json", "json";
    XML = 142, 143, "xml", "xml";
    PG_NODE_TREE = 194, 0, "pg_node_tree", "pg_node_tree";
    FLOAT4 = 700, 1021, "float4", "real";
    FLOAT8 = 701, 1022, "float8", "double precision";
    UNKNOWN = 705, 0, "unknown", "unknown";
    ACLITEM = 1033, 1034, "aclitem", "aclitem";
    BPCHAR = 1042, 1014, "bpchar", "character";
    VARCHAR = 1043, 1015, "varchar", "character varying";
    DATE = 1082, 1182, "date", "date";
    TIME = 1083, 1183, "time", "time without time zone";
    TIMESTAMP = 1114, 1115, "timestamp", "timestamp without time zone";
    TIMESTAMPTZ = 1184, 1185, "timestamptz", "timestamp with time zone";
    INTERVAL = 1186, 1187, "interval", "interval";
    NUMERIC = 1700, 1231, "numeric", "numeric";
    REGPROCEDURE = 2202, 2207, "regprocedure", "regprocedure";
    REGOPER = 2203, 2208, "regoper", "regoper";
    REGOPERATOR = 2204, 2209, "regoperator", "regoperator";
    REGCLASS = 2205, 2210, "regclass", "regclass";
    REGTYPE = 2206, 2211, "regtype", "regtype";
    RECORD = 2249, 2287, "record", "record";
    ANYARRAY = 2277, 0, "anyarray", "anyarray";
    VOID = 2278, 0, "void", "void";
    UUID = 2950, 2951, "uuid", "uuid";
    PG_LSN = 3220, 3221, "pg_lsn", "pg_lsn";
    REGCONFIG = 3734, 3735, "regconfig", "regconfig";
    REGDICTIONARY = 3769, 3770, "regdictionary", "regdictionary";
    JSONB = 3802, 3807, "jsonb", "jsonb";
    REGNAMESPACE = 4089, 4090, "regnamespace", "regnamespace";
    REGROLE = 4096, 4097, "regrole", "regrole";
    REGCOLLATION = 4191, 4192, "regcollation", "regcollation";
    XID8 = 5069, 271, "xid8", "xid8";
    INET = 869, 1041, "inet", "inet";
    TIMETZ = 1266, 1270, "timetz", "time with time zone";
}

/// The type of the elements of an array; `int2vector` and `oidvector` are arrays too.
pub fn element(array: Oid) -> Option<Oid> {
    match array {
        INT2VECTOR => Some(INT2),
        OIDVECTOR => Some(OID),
        ANYARRAY => Some(TEXT),
        0 => None,
        _ => TYPES.iter().find(|t| t.1 == array).map(|t| t.0),
    }
}

/// The type of arrays of `element`.
pub fn array_of(element: Oid) -> Option<Oid> {
    TYPES.iter().find(|t| t.0 == element).map(|t| t.1).filter(|array| *array != 0)
}

/// The first subscript: those of the vectors of the catalog begin at 0.
pub fn first_subscript(array: Oid) -> i64 {
    i64::from(!matches!(array, INT2VECTOR | OIDVECTOR))
}

/// What values of the type are to the evaluator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Bool,
    Int,
    Float,
    Text,
    Array,
    Record,
    Unknown,
}

pub fn class(oid: Oid) -> Class {
    match oid {
        BOOL => Class::Bool,
        INT8 | INT2 | INT4 | OID | XID | CID | XID8 | REGPROC | REGPROCEDURE | REGOPER
        | REGOPERATOR | REGCLASS | REGTYPE | REGNAMESPACE | REGROLE | REGCONFIG | REGDICTIONARY
        | REGCOLLATION | TIMESTAMP | TIMESTAMPTZ => Class::Int,
        FLOAT4 | FLOAT8 | NUMERIC => Class::Float,
        RECORD => Class::Record,
        UNKNOWN => Class::Unknown,
        _ if element(oid).is_some() => Class::Array,
        _ => Class::Text,
    }
}

/// Whether its values are OIDs that are shown as names.
pub fn is_alias(oid: Oid) -> bool {
    matches!(
        oid,
        REGPROC
            | REGPROCEDURE
            | REGOPER
            | REGOPERATOR
            | REGCLASS
            | REGTYPE
            | REGNAMESPACE
            | REGROLE
            | REGCONFIG
            | REGDICTIONARY
            | REGCOLLATION
    )
}

/// The name that `format_type` shows, with the type's modifier; `None`: no type of this list.
pub fn shown(oid: Oid, typmod: i32) -> Option<String> {
    if !matches!(oid, INT2VECTOR | OIDVECTOR | ANYARRAY)
        && let Some(element) = element(oid)
    {
        return shown(element, typmod).map(|name| name + "[]");
    }
    let name = TYPES.iter().find(|t| t.0 == oid)?.3;
    Some(match (oid, typmod) {
        (_, ..0) => name.into(),
        (NUMERIC, 4..) => {
            let (precision, scale) = (((typmod - 4) >> 16) & 0xffff, (typmod - 4) & 0x7ff);
            let scale = if scale >= 1024 { scale - 2048 } else { scale };
            format!("numeric({precision},{scale})")
        }
        (VARCHAR | BPCHAR, 4..) => format!("{name}({})", typmod - 4),
        (TIMESTAMP, _) => format!("timestamp({typmod}) without time zone"),
        (TIMESTAMPTZ, _) => format!("timestamp({typmod}) with time zone"),
        (TIME, _) => format!("time({typmod}) without time zone"),
        _ => name.into(),
    })
}

/// `typname`; arrays have the element's with an underscore.
pub fn name(oid: Oid) -> Option<String> {
    if let Some(t) = TYPES.iter().find(|t| t.0 == oid) {
        return Some(t.2.into());
    }
    element(oid).and_then(name).map(|name| format!("_{name}"))
}

/// By `typname`, or by a name of the SQL standard: `int4`, `integer`, `_int4`, `integer[]`.
pub fn named(name: &str) -> Option<Oid> {
    if let Some(base) = name.strip_suffix("[]") {
        return array_of(named(base.trim_end())?);
    }
    let by_name = |name: &str| TYPES.iter().find(|t| t.2 == name).map(|t| t.0);
    match name {
        // Without quotes it is `character`.
        "char" => Some(BPCHAR),
        "\"char\"" => Some(CHAR),
        "int" => Some(INT4),
        "float" | "double" => Some(FLOAT8),
        "decimal" => Some(NUMERIC),
        "string" => Some(TEXT),
        _ => by_name(name)
            .or_else(|| TYPES.iter().find(|t| t.3 == name).map(|t| t.0))
            .or_else(|| array_of(by_name(name.strip_prefix('_')?)?)),
    }
}

fn numeric_typmod(info: &ExactNumberInfo) -> i32 {
    let typmod =
        |precision: u64, scale: i64| ((precision as i32) << 16 | (scale as i32 & 0x7ff)) + 4;
    match info {
        ExactNumberInfo::None => -1,
        ExactNumberInfo::Precision(p) => typmod(*p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => typmod(*p, *s),
    }
}

fn length(length: &Option<CharacterLength>) -> i32 {
    match length {
        Some(CharacterLength::IntegerLength { length, .. }) => *length as i32 + 4,
        _ => -1,
    }
}

/// A type as it is written in a cast: OID and modifier.
pub fn of_sql(data_type: &DataType) -> Result<(Oid, i32)> {
    use DataType as D;
    Ok(match data_type {
        D::Bool | D::Boolean => (BOOL, -1),
        D::SmallInt(_) | D::Int2(_) => (INT2, -1),
        D::Int(_) | D::Integer(_) | D::Int4(_) => (INT4, -1),
        D::BigInt(_) | D::Int8(_) => (INT8, -1),
        D::Real | D::Float4 => (FLOAT4, -1),
        D::Float(_) | D::Double(_) | D::DoublePrecision | D::Float8 => (FLOAT8, -1),
        D::Numeric(i) | D::Decimal(i) | D::Dec(i) => (NUMERIC, numeric_typmod(i)),
        D::Text | D::String(_) => (TEXT, -1),
        D::Varchar(l) | D::CharacterVarying(l) | D::CharVarying(l) => (VARCHAR, length(l)),
        D::Char(l) | D::Character(l) => (BPCHAR, length(l)),
        D::Bytea => (BYTEA, -1),
        D::Date => (DATE, -1),
        D::Uuid => (UUID, -1),
        D::JSON => (JSON, -1),
        D::JSONB => (JSONB, -1),
        D::Regclass => (REGCLASS, -1),
        D::Interval { .. } => (INTERVAL, -1),
        D::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => (TIMESTAMPTZ, -1),
        D::Timestamp(..) => (TIMESTAMP, -1),
        D::Time(..) => (TIME, -1),
        D::Array(
            ArrayElemTypeDef::SquareBracket(inner, _) | ArrayElemTypeDef::AngleBracket(inner),
        ) => {
            let (element, typmod) = of_sql(inner)?;
            let array = array_of(element).ok_or_else(|| no_type(&data_type.to_string()))?;
            (array, typmod)
        }
        D::Custom(name, _) => {
            let last = name.0.last().and_then(|part| part.as_ident());
            let last = last.ok_or_else(|| no_type(&data_type.to_string()))?;
            let oid = match (last.quote_style, last.value.as_str()) {
                (Some(_), "char") => Some(CHAR),
                (Some(_), quoted) => named(quoted),
                // `pg_catalog.char` is the one of a single byte.
                (None, word) if name.0.len() > 1 && word.eq_ignore_ascii_case("char") => Some(CHAR),
                (None, word) => named(&word.to_lowercase()),
            };
            (oid.ok_or_else(|| no_type(&last.value))?, -1)
        }
        other => return Err(no_type(&other.to_string())),
    })
}

pub fn no_type(name: &str) -> Error {
    Error::user(format!("type \"{name}\" does not exist")).code("42704")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_names_and_arrays() {
        assert_eq!(named("integer"), Some(INT4));
        assert_eq!(named("_text"), Some(1009));
        assert_eq!(named("timestamp with time zone[]"), Some(1185));
        assert_eq!(named("nothing"), None);
        assert_eq!(shown(NUMERIC, ((12 << 16) | 2) + 4).unwrap(), "numeric(12,2)");
        assert_eq!(shown(1015, -1).unwrap(), "character varying[]");
        assert_eq!(name(1007).unwrap(), "_int4");
        assert_eq!(element(INT2VECTOR), Some(INT2));
    }
}
