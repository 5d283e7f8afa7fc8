//! The expressions that a key may contain, and the names that they start from.

use syn::ext::IdentExt;
use syn::{BinOp, Expr, ExprPath};

/// Returns the part of an expression that a key may not contain.
pub(crate) fn check(expr: &Expr) -> Result<(), &'static str> {
    match expr {
        Expr::Lit(_) | Expr::Path(_) => Ok(()),
        Expr::Field(field) => check(&field.base),
        Expr::Paren(inner) => check(&inner.expr),
        Expr::Group(inner) => check(&inner.expr),
        Expr::Unary(unary) => check(&unary.expr),
        Expr::Reference(reference) => check(&reference.expr),
        Expr::Cast(cast) => check(&cast.expr),
        Expr::Index(index) => check(&index.expr).and_then(|()| check(&index.index)),
        Expr::MethodCall(call) => check(&call.receiver).and_then(|()| call.args.iter().try_for_each(check)),
        Expr::Call(call) => check(&call.func).and_then(|()| call.args.iter().try_for_each(check)),
        Expr::Range(range) => range.start.iter().chain(&range.end).try_for_each(|end| check(end)),
        Expr::Binary(binary) => match binary.op {
            BinOp::Add(_) | BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_) | BinOp::Rem(_) => {
                check(&binary.left).and_then(|()| check(&binary.right))
            }
            _ => Err("this operator"),
        },
        Expr::Await(_) => Err("`.await`"),
        Expr::Try(_) => Err("`?`"),
        Expr::Closure(_) => Err("a closure"),
        Expr::Macro(_) => Err("a macro"),
        Expr::Assign(_) => Err("an assignment"),
        Expr::Block(_) | Expr::Async(_) | Expr::Unsafe(_) | Expr::Const(_) => Err("a block"),
        _ => Err("this kind of expression"),
    }
}

/// Returns the plain names whose values an expression starts from, without the functions that it calls, and without
/// `r#`.
pub(crate) fn roots(expr: &Expr) -> Vec<String> {
    let mut found = Vec::new();
    collect(expr, &mut found);
    found
}

fn collect(expr: &Expr, found: &mut Vec<String>) {
    match expr {
        Expr::Path(ExprPath { qself: None, path, .. }) => {
            found.extend(path.get_ident().map(|name| name.unraw().to_string()));
        }
        Expr::Field(field) => collect(&field.base, found),
        Expr::Paren(inner) => collect(&inner.expr, found),
        Expr::Group(inner) => collect(&inner.expr, found),
        Expr::Unary(unary) => collect(&unary.expr, found),
        Expr::Reference(reference) => collect(&reference.expr, found),
        Expr::Cast(cast) => collect(&cast.expr, found),
        Expr::Index(index) => {
            collect(&index.expr, found);
            collect(&index.index, found);
        }
        Expr::MethodCall(call) => {
            collect(&call.receiver, found);
            call.args.iter().for_each(|argument| collect(argument, found));
        }
        Expr::Call(call) => call.args.iter().for_each(|argument| collect(argument, found)),
        Expr::Range(range) => range.start.iter().chain(&range.end).for_each(|end| collect(end, found)),
        Expr::Binary(binary) => {
            collect(&binary.left, found);
            collect(&binary.right, found);
        }
        _ => {}
    }
}
