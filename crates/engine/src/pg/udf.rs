//! Functions about the server in statements that are planned, such as
//! `SELECT current_user, count(*) FROM t`.

use std::hash::{Hash, Hasher};
use std::sync::Weak;

use arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;
use thalweg_base::Error;
use thalweg_pgcatalog::database::Database;
use thalweg_pgcatalog::{Value, types};

use thalweg_errors::into_datafusion;

use super::environment::Seen;
use crate::session::Inner;

/// Those without arguments, and those that drivers call on their own. They depend on nothing but
/// the session, and on no row.
const NAMES: &[&str] = &[
    "current_database",
    "current_catalog",
    "current_schema",
    "current_user",
    "session_user",
    "current_role",
    "version",
    "pg_backend_pid",
    "pg_postmaster_start_time",
    "pg_is_in_recovery",
    "current_setting",
];

/// Makes the functions known to the planner of a session.
pub fn register(context: &SessionContext, session: &Weak<Inner>) {
    for name in NAMES {
        context.register_udf(ScalarUDF::new_from_impl(Function::new(name, session)));
    }
}

#[derive(Debug)]
struct Function {
    name: &'static str,
    session: Handle,
    signature: Signature,
}

struct Handle(Weak<Inner>);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("session")
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.session.0.ptr_eq(&other.session.0)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Function {
    fn new(name: &'static str, session: &Weak<Inner>) -> Self {
        let signature = match name {
            "current_setting" => Signature::string(1, Volatility::Volatile),
            _ => Signature::nullary(Volatility::Volatile),
        };
        Function { name, session: Handle(Weak::clone(session)), signature }
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(match self.name {
            "pg_backend_pid" => DataType::Int32,
            "pg_is_in_recovery" => DataType::Boolean,
            "pg_postmaster_start_time" => super::answer::arrow_type(types::TIMESTAMPTZ),
            _ => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let session = self.session.0.upgrade();
        let session =
            session.ok_or_else(|| into_datafusion(Error::internal("the session is closed")))?;
        let mut values = vec![];
        for arg in &args.args {
            let text = match arg {
                ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten(),
                ColumnarValue::Array(_) => {
                    return Err(into_datafusion(Error::unsupported(format!(
                        "{} takes a constant here",
                        self.name
                    ))));
                }
            };
            values.push(text.map_or(Value::Null, Value::from));
        }
        let of = vec![types::TEXT; values.len()];
        let resolved = thalweg_pgcatalog::scalar(self.name, &of).ok_or_else(|| {
            into_datafusion(Error::internal(format!("no function {}", self.name)))
        })?;
        let snapshot = session.catalog.snapshot();
        let seen = Seen::new(session, None, snapshot, Database::default());
        let value = thalweg_pgcatalog::call(&resolved, &seen, &values).map_err(into_datafusion)?;
        Ok(ColumnarValue::Scalar(match value {
            Value::Bool(b) => ScalarValue::Boolean(Some(b)),
            Value::Int(n) if resolved.result == types::INT4 => ScalarValue::Int32(Some(n as i32)),
            Value::Int(us) => ScalarValue::TimestampMicrosecond(Some(us), Some("+00:00".into())),
            Value::Text(text) => ScalarValue::Utf8(Some(text.to_string())),
            _ => ScalarValue::try_from(args.return_field.data_type())?,
        }))
    }
}
