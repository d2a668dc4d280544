//! The suite, once per store.

/// On the reference.
mod memory {
    use crate::subjects::Memory;
    rota_conformance::conformance_suite!(Memory);
}

/// On SQLite.
mod sqlite {
    use crate::subjects::Sqlite;
    rota_conformance::conformance_suite!(Sqlite::default());
}

/// On PostgreSQL.
mod postgres {
    use crate::subjects::Postgres;
    rota_conformance::conformance_suite!(Postgres);
}
