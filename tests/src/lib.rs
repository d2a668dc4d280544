//! What the tests of the whole product share: the files of the tree, and Rust source seen without its comments and
//! texts. Nothing in here knows a rule.

pub mod source;
pub mod tree;
