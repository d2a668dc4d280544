//! Every verb, once. An input is what the command line takes, in camelCase; what it may leave out has the command line's
//! default. Lists of words are comma-separated texts there as here, so that an address can hold them.

mod control;
mod issues;
mod loops;
mod task;
mod upkeep;

pub use control::*;
pub use issues::*;
pub use loops::*;
pub use task::*;
pub use upkeep::*;

use crate::verb::Visitor;

/// Declares verbs: their inputs, and how each is found and carried out.
macro_rules! verbs {
    ($(
        #[doc = $about:literal]
        $(#[$meta:meta])*
        $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? } => $payload:ty,
        $word:literal $method:ident $path:literal $telling:ident,
        |$cx:ident, $input:ident| $run:expr;
    )*) => {
        $(
            #[doc = $about]
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
            #[serde(rename_all = "camelCase", deny_unknown_fields)]
            #[allow(missing_docs, reason = "the fields are those of the command line")]
            pub struct $name {
                $($(#[$field_meta])* pub $field: $type,)*
            }

            #[async_trait::async_trait]
            impl crate::verb::Verb for $name {
                type Payload = $payload;
                const ROUTE: crate::verb::Route = crate::verb::Route {
                    name: $word,
                    method: crate::verb::Method::$method,
                    path: $path,
                    about: $about.trim_ascii(),
                    telling: crate::verb::Telling::$telling,
                };

                async fn run(self, $cx: &crate::Context) -> crate::Result<$payload> {
                    let $input = self;
                    $run
                }
            }
        )*

        pub(super) fn visit(visitor: &mut impl crate::verb::Visitor) {
            $(visitor.visit::<$name>();)*
        }
    };
}
use verbs;

/// Shows every verb to somebody.
pub fn visit_all(visitor: &mut impl Visitor) {
    task::visit(visitor);
    control::visit(visitor);
    loops::visit(visitor);
    issues::visit(visitor);
    upkeep::visit(visitor);
}

pub(crate) fn tasks_queue() -> String {
    "tasks".to_owned()
}

fn runs_queue() -> String {
    "runs".to_owned()
}

fn is_false(flag: &bool) -> bool {
    !flag
}
