//! Expressions over the registers of a batch.
//!
//! An expression is a tree of plain values. Whoever runs it makes of it what it can run: its literals and
//! operations are of other types then, which is why [`Expr`] has them as parameters.

use std::fmt;

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use crate::{Literal, Op, Opaque, written};

/// The place of a column in a batch.
pub type Register = usize;

/// Levels of operations within one another that an expression may have. What walks an expression calls
/// itself once for each.
pub const DEPTH_MAX: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

/// What of a plan is called with the values of its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// The only value that an earlier pipeline has given to a sink that emits it; NULL if it has given
    /// none. It has no arguments.
    Subquery(usize),
    Op(Op),
    Opaque(Opaque),
}

impl Called for Operation {
    fn may_fail(&self, arguments: &[DataType]) -> bool {
        match self {
            Operation::Subquery(_) => false,
            Operation::Op(op) => op.may_fail(arguments),
            Operation::Opaque(_) => true,
        }
    }

    fn is_pure(&self) -> bool {
        match self {
            Operation::Subquery(_) | Operation::Op(_) => true,
            Operation::Opaque(opaque) => opaque.pure,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr<L = Literal, F = Operation> {
    Register(Register, DataType),
    /// The number of the row that a register's value comes from in the table that was probed for
    /// it. Nothing may have read the register.
    Row(Register),
    Literal(L),
    Compare(Comparison, Box<Self>, Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    IsNull(Box<Self>),
    /// Of decimals; with the type of the result.
    Arithmetic(Arithmetic, Box<Self>, Box<Self>, DataType),
    /// A signed integer, or a decimal with as many digits behind its point, as a decimal that holds all
    /// values of its type.
    Widen(Box<Self>, DataType),
    /// With the type of the result.
    Call(F, Vec<Self>, DataType),
}

/// A constant of some kind.
pub trait Constant {
    fn data_type(&self) -> DataType;
}

impl Constant for Literal {
    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }
}

/// What is called, of some kind.
pub trait Called {
    /// Whether it may be an error for some values of these types.
    fn may_fail(&self, arguments: &[DataType]) -> bool;

    /// Whether the same arguments always give the same value, row by row.
    fn is_pure(&self) -> bool;
}

impl<L: Constant, F: Called> Expr<L, F> {
    /// Whether it may be an error for some row.
    pub fn may_fail(&self) -> bool {
        let own = match self {
            Expr::Arithmetic(..) => true,
            Expr::Call(called, arguments, _) => {
                let types: Vec<DataType> = arguments.iter().map(Expr::data_type).collect();
                called.may_fail(&types)
            }
            _ => false,
        };
        own || self.operands().into_iter().any(Expr::may_fail)
    }

    /// Whether the same rows always have the same values.
    pub fn is_pure(&self) -> bool {
        let mut pure = true;
        self.calls(&mut |called| pure &= called.is_pure());
        pure
    }
}

impl<L: Constant, F> Expr<L, F> {
    /// The logical type.
    pub fn data_type(&self) -> DataType {
        match self {
            Expr::Register(_, data_type)
            | Expr::Arithmetic(.., data_type)
            | Expr::Widen(_, data_type)
            | Expr::Call(.., data_type) => data_type.clone(),
            Expr::Row(_) => DataType::UInt32,
            Expr::Literal(literal) => literal.data_type(),
            Expr::Compare(..) | Expr::And(..) | Expr::Or(..) | Expr::Not(_) | Expr::IsNull(_) => {
                DataType::Boolean
            }
        }
    }
}

impl<L, F> Expr<L, F> {
    /// Which register it is, if it is one.
    pub fn register(&self) -> Option<Register> {
        match self {
            Expr::Register(register, _) => Some(*register),
            _ => None,
        }
    }

    /// What it is computed from.
    pub fn operands(&self) -> Vec<&Self> {
        match self {
            Expr::Register(..) | Expr::Row(_) | Expr::Literal(_) => vec![],
            Expr::Not(a) | Expr::IsNull(a) | Expr::Widen(a, _) => vec![a],
            Expr::Compare(_, a, b)
            | Expr::And(a, b)
            | Expr::Or(a, b)
            | Expr::Arithmetic(_, a, b, _) => vec![a, b],
            Expr::Call(_, arguments, _) => arguments.iter().collect(),
        }
    }

    /// Calls `f` with every register that is read.
    pub fn registers(&self, f: &mut impl FnMut(Register)) {
        match self {
            Expr::Register(register, _) | Expr::Row(register) => f(*register),
            other => other.operands().into_iter().for_each(|operand| operand.registers(f)),
        }
    }

    /// Calls `f` with everything that is called.
    pub fn calls(&self, f: &mut impl FnMut(&F)) {
        if let Expr::Call(operation, ..) = self {
            f(operation);
        }
        self.operands().into_iter().for_each(|operand| operand.calls(f));
    }

    /// The same with other literals and operations.
    pub fn map<M, G, E>(
        &self,
        literal: &impl Fn(&L) -> Result<M, E>,
        operation: &impl Fn(&F) -> Result<G, E>,
    ) -> Result<Expr<M, G>, E> {
        let of = |e: &Self| e.map(literal, operation).map(Box::new);
        Ok(match self {
            Expr::Register(register, data_type) => Expr::Register(*register, data_type.clone()),
            Expr::Row(register) => Expr::Row(*register),
            Expr::Literal(value) => Expr::Literal(literal(value)?),
            Expr::Compare(comparison, a, b) => Expr::Compare(*comparison, of(a)?, of(b)?),
            Expr::And(a, b) => Expr::And(of(a)?, of(b)?),
            Expr::Or(a, b) => Expr::Or(of(a)?, of(b)?),
            Expr::Not(a) => Expr::Not(of(a)?),
            Expr::IsNull(a) => Expr::IsNull(of(a)?),
            Expr::Arithmetic(arithmetic, a, b, result) => {
                Expr::Arithmetic(*arithmetic, of(a)?, of(b)?, result.clone())
            }
            Expr::Widen(a, result) => Expr::Widen(of(a)?, result.clone()),
            Expr::Call(called, arguments, result) => {
                let arguments = arguments.iter().map(|a| a.map(literal, operation));
                let arguments = arguments.collect::<Result<_, E>>()?;
                Expr::Call(operation(called)?, arguments, result.clone())
            }
        })
    }
}

impl Comparison {
    /// The one that says the same with its sides exchanged.
    pub fn turned(self) -> Self {
        match self {
            Comparison::Equal | Comparison::NotEqual => self,
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "<>",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

impl Arithmetic {
    fn symbol(self) -> &'static str {
        match self {
            Arithmetic::Add => "+",
            Arithmetic::Subtract => "-",
            Arithmetic::Multiply => "*",
        }
    }
}

/// How a literal, or what is called, is shown.
pub trait Shown {
    /// `arguments`: how what it is called with is shown.
    fn show(&self, arguments: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl Shown for Literal {
    fn show(&self, _: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Shown for Operation {
    fn show(&self, arguments: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Subquery(sink) => write!(f, "(scalar subquery #{sink})"),
            Operation::Op(op) => op.describe(arguments, f),
            Operation::Opaque(Opaque { number, shown, .. }) => {
                write!(f, "opaque {number} [{shown}]({})", arguments.join(", "))
            }
        }
    }
}

/// An expression with the names of its registers, to be shown.
#[derive(Clone, Copy)]
pub struct Named<'a, L, F>(pub &'a Expr<L, F>, pub &'a [String]);

impl<L: Shown, F: Shown> fmt::Display for Named<'_, L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named(expr, names) = *self;
        let named = |e| Named(e, names);
        match expr {
            Expr::Register(register, _) => match names.get(*register) {
                Some(name) => f.write_str(name),
                None => write!(f, "r{register}"),
            },
            Expr::Row(register) => match names.get(*register) {
                Some(name) => write!(f, "row of {name}"),
                None => write!(f, "row of r{register}"),
            },
            Expr::Literal(value) => value.show(&[], f),
            Expr::Compare(c, a, b) => write!(f, "{} {} {}", named(a), c.symbol(), named(b)),
            Expr::And(a, b) => write!(f, "({} AND {})", named(a), named(b)),
            Expr::Or(a, b) => write!(f, "({} OR {})", named(a), named(b)),
            Expr::Not(a) => write!(f, "NOT ({})", named(a)),
            Expr::IsNull(a) => write!(f, "{} IS NULL", named(a)),
            Expr::Arithmetic(o, a, b, _) => write!(f, "({} {} {})", named(a), o.symbol(), named(b)),
            Expr::Widen(a, _) => write!(f, "{}", named(a)),
            Expr::Call(called, arguments, _) => {
                let arguments: Vec<_> = arguments.iter().map(|a| named(a).to_string()).collect();
                called.show(&arguments, f)
            }
        }
    }
}

/// One node of an expression, as it is written down: after its operands, which are those before it.
#[derive(Serialize, Deserialize)]
#[serde(bound(
    serialize = "L: Serialize, F: Serialize",
    deserialize = "L: Deserialize<'de>, F: Deserialize<'de>"
))]
enum Node<L, F> {
    Register(Register, #[serde(with = "written::data_type")] DataType),
    Row(Register),
    Literal(L),
    Compare(Comparison),
    And,
    Or,
    Not,
    IsNull,
    Arithmetic(Arithmetic, #[serde(with = "written::data_type")] DataType),
    Widen(#[serde(with = "written::data_type")] DataType),
    /// With the number of its arguments.
    Call(F, usize, #[serde(with = "written::data_type")] DataType),
}

impl<L: Clone, F: Clone> Expr<L, F> {
    fn nodes(&self, nodes: &mut Vec<Node<L, F>>) {
        self.operands().into_iter().for_each(|operand| operand.nodes(nodes));
        nodes.push(match self {
            Expr::Register(register, data_type) => Node::Register(*register, data_type.clone()),
            Expr::Row(register) => Node::Row(*register),
            Expr::Literal(literal) => Node::Literal(literal.clone()),
            Expr::Compare(comparison, ..) => Node::Compare(*comparison),
            Expr::And(..) => Node::And,
            Expr::Or(..) => Node::Or,
            Expr::Not(_) => Node::Not,
            Expr::IsNull(_) => Node::IsNull,
            Expr::Arithmetic(arithmetic, _, _, result) => {
                Node::Arithmetic(*arithmetic, result.clone())
            }
            Expr::Widen(_, result) => Node::Widen(result.clone()),
            Expr::Call(called, arguments, result) => {
                Node::Call(called.clone(), arguments.len(), result.clone())
            }
        });
    }

    /// `None`: these are not the nodes of one expression, or it is nested too deeply.
    fn of(nodes: Vec<Node<L, F>>) -> Option<Self> {
        // Each with how deep it is.
        let mut stack: Vec<(Self, usize)> = vec![];
        for node in nodes {
            let (expr, depth) = match node {
                Node::Register(register, data_type) => (Expr::Register(register, data_type), 0),
                Node::Row(register) => (Expr::Row(register), 0),
                Node::Literal(literal) => (Expr::Literal(literal), 0),
                Node::Compare(comparison) => {
                    let ((b, of_b), (a, of_a)) = (stack.pop()?, stack.pop()?);
                    (Expr::Compare(comparison, a.into(), b.into()), of_a.max(of_b))
                }
                Node::And => {
                    let ((b, of_b), (a, of_a)) = (stack.pop()?, stack.pop()?);
                    (Expr::And(a.into(), b.into()), of_a.max(of_b))
                }
                Node::Or => {
                    let ((b, of_b), (a, of_a)) = (stack.pop()?, stack.pop()?);
                    (Expr::Or(a.into(), b.into()), of_a.max(of_b))
                }
                Node::Not => {
                    let (a, depth) = stack.pop()?;
                    (Expr::Not(a.into()), depth)
                }
                Node::IsNull => {
                    let (a, depth) = stack.pop()?;
                    (Expr::IsNull(a.into()), depth)
                }
                Node::Arithmetic(arithmetic, result) => {
                    let ((b, of_b), (a, of_a)) = (stack.pop()?, stack.pop()?);
                    (Expr::Arithmetic(arithmetic, a.into(), b.into(), result), of_a.max(of_b))
                }
                Node::Widen(result) => {
                    let (a, depth) = stack.pop()?;
                    (Expr::Widen(a.into(), result), depth)
                }
                Node::Call(called, count, result) => {
                    let arguments = stack.split_off(stack.len().checked_sub(count)?);
                    let depth = arguments.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
                    let arguments = arguments.into_iter().map(|(argument, _)| argument);
                    (Expr::Call(called, arguments.collect(), result), depth)
                }
            };
            if depth >= DEPTH_MAX {
                return None;
            }
            stack.push((expr, depth + 1));
        }
        let (expr, _) = stack.pop()?;
        stack.is_empty().then_some(expr)
    }
}

impl<L: Serialize + Clone, F: Serialize + Clone> Serialize for Expr<L, F> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut nodes = vec![];
        self.nodes(&mut nodes);
        nodes.serialize(serializer)
    }
}

impl<'de, L: Deserialize<'de> + Clone, F: Deserialize<'de> + Clone> Deserialize<'de>
    for Expr<L, F>
{
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let nodes = Vec::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom("these nodes are no expression");
        Expr::of(nodes).ok_or_else(wrong)
    }
}
