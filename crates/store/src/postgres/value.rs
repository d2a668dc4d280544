//! Values as statements carry them: one row's, or a column's for many rows.

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type};

type Encoded = Result<IsNull, Box<dyn std::error::Error + Sync + Send>>;

/// One value. Rota's columns have three types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Bool(bool),
}

macro_rules! from {
    ($($type:ty: $value:ident => $made:expr),*) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $made
            }
        })*
    };
}

from!(
    i64: value => Self::Int(Some(value)),
    Option<i64>: value => Self::Int(value),
    bool: value => Self::Bool(value),
    String: value => Self::Text(Some(value)),
    Option<String>: value => Self::Text(value),
    &str: value => Self::Text(Some(value.to_owned())),
    Option<&str>: value => Self::Text(value.map(str::to_owned))
);

impl Value {
    /// The type of an array of such values.
    pub fn array_type(&self) -> &'static str {
        match self {
            Self::Int(_) => "bigint[]",
            Self::Text(_) => "text[]",
            Self::Bool(_) => "boolean[]",
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Encoded {
        match self {
            Self::Int(value) => value.to_sql(kind, out),
            Self::Text(value) => value.to_sql(kind, out),
            Self::Bool(value) => value.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::TEXT, Type::BOOL].contains(kind)
    }

    fn to_sql_checked(&self, kind: &Type, out: &mut BytesMut) -> Encoded {
        match self {
            Self::Int(value) => value.to_sql_checked(kind, out),
            Self::Text(value) => value.to_sql_checked(kind, out),
            Self::Bool(value) => value.to_sql_checked(kind, out),
        }
    }
}

/// One column of many rows.
pub(super) enum Column {
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
    Bools(Vec<bool>),
}

impl Column {
    /// Turns rows of equal shape into columns.
    pub fn transpose(rows: Vec<Vec<Value>>) -> Vec<Self> {
        let mut columns: Vec<Self> = Vec::new();
        for row in rows {
            for (index, value) in row.into_iter().enumerate() {
                if index == columns.len() {
                    columns.push(match value {
                        Value::Int(_) => Self::Ints(Vec::new()),
                        Value::Text(_) => Self::Texts(Vec::new()),
                        Value::Bool(_) => Self::Bools(Vec::new()),
                    });
                }
                match (&mut columns[index], value) {
                    (Self::Ints(column), Value::Int(value)) => column.push(value),
                    (Self::Texts(column), Value::Text(value)) => column.push(value),
                    (Self::Bools(column), Value::Bool(value)) => column.push(value),
                    _ => unreachable!("a column has one type"),
                }
            }
        }
        columns
    }

    pub fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Ints(column) => column,
            Self::Texts(column) => column,
            Self::Bools(column) => column,
        }
    }
}

/// The type of a value that is sent without a prepared statement: one of those that Rota uses, the most frequent first.
pub(super) fn type_of(value: &(dyn ToSql + Sync)) -> Type {
    const KNOWN: [Type; 6] =
        [Type::INT8, Type::TEXT, Type::BOOL, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::BOOL_ARRAY];
    let mut scratch = BytesMut::new();
    let mut fits = |kind: &Type| {
        scratch.clear();
        value.to_sql_checked(kind, &mut scratch).is_ok()
    };
    KNOWN.into_iter().find(|kind| fits(kind)).unwrap_or(Type::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_type() {
        let (words, numbers) = (vec!["a"], vec![Some(1_i64)]);
        let (none, absent): (Option<i64>, Option<&str>) = (None, None);
        let (int, text) = (Value::from(none), Value::from("a"));
        let bound: [&(dyn ToSql + Sync); 9] =
            [&1_i64, &"a", &true, &words, &numbers, &none, &absent, &int, &text];
        let types: Vec<Type> = bound.into_iter().map(type_of).collect();
        let expected = [
            Type::INT8,
            Type::TEXT,
            Type::BOOL,
            Type::TEXT_ARRAY,
            Type::INT8_ARRAY,
            Type::INT8,
            Type::TEXT,
            Type::INT8,
            Type::TEXT,
        ];
        assert_eq!(types, expected);
    }
}
