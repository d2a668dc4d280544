//! One suite, run by every store: what a store must do, whatever it is made of.
