use super::translate;

fn text(program: &str) -> String {
    String::from_utf8(translate(program.as_bytes()).expect("a program")).expect("text")
}

#[test]
fn operators_become_pairs_and_strings_stay() {
    assert_eq!(text("a/b"), "a// __zdiv0 //b");
    assert_eq!(
        text("x = '50% / 2^3' -- 1/2\ny"),
        "x = '50% / 2^3' -- 1/2\ny"
    );
    assert_eq!(text("[[a%b]]..[==[/]]]==]"), "[[a%b]]..[==[/]]]==]");
    assert_eq!(text("a1/b2"), "a1// __zdiv0 //b2");
}

#[test]
fn the_left_operand_of_a_power_is_told_of_it() {
    for (program, wanted) in [
        ("-a^b", "-__zpow0(a) ^b"),
        ("a.b[c]:d(e){f}^g", "__zpow0(a.b[c]:d(e){f}) ^g"),
        ("(a+b)^c^d", "__zpow0((a+b)) ^__zpow1(c) ^d"),
        ("a = b c = f's'^d", "a = b c = __zpow0(f's') ^d"),
        (
            "return ...^a, {[k]=v}^b",
            "return __zpow0(...) ^a, __zpow1({[k]=v}) ^b",
        ),
        ("f(a^b, c)^d", "__zpow1(f(__zpow0(a) ^b, c)) ^d"),
        ("a..b^c", "a..__zpow0(b) ^c"),
        ("not a^nil", "not __zpow0(a) ^nil"),
        ("x = 'a'^b -- c^d", "x = __zpow0('a') ^b -- c^d"),
        ("function() end ^ a", "function() end ^ a"),
        ("a\n^b", "__zpow0(a\n) ^b"),
    ] {
        assert_eq!(text(program), wanted, "{program}");
    }
}

#[test]
fn the_last_call_of_a_return_keeps_its_caller() {
    for (program, wanted) in [
        ("return zfs.exists{}", "return __zall(zfs.exists{})"),
        (
            "if a then return string.rep(b, c(d)) -- e\nend",
            "if a then return __zall(string.rep(b, c(d))) -- e\nend",
        ),
        (
            "f(function() return table.concat(t, (a)) end)",
            "f(function() return __zall(table.concat(t, (a))) end)",
        ),
        (
            "return assert(f(function() return tonumber'a' end))",
            "return __zall(assert(f(function() return __zall(tonumber'a') end)))",
        ),
        (
            "return zfs.list.x(a):m(b);",
            "return __zall(zfs.list.x(a):m(b));",
        ),
    ] {
        assert_eq!(text(program), wanted, "{program}");
    }
    for same in [
        "return f(x)",
        "return string.rep(a) .. b",
        "return string.rep(a), b",
        "return string.x",
        "return (string.rep(a))",
        "return {string.rep(a)}",
        "x = string.rep(a)",
        "return string.rep(a)[b]",
    ] {
        assert_eq!(text(same), same);
    }
}

#[test]
fn numbers_are_whole_and_wrap_around() {
    assert_eq!(text("10 .. 20"), "0xa .. 0x14");
    assert_eq!(text("9223372036854775808"), "0x8000000000000000");
    assert_eq!(text("010 0"), "0x8 0x0");
    for bad in ["1.5", "1e3", ".5", "0x", "3x", "09"] {
        let (line, why) = translate(format!("\nx = {bad}").as_bytes()).expect_err("no number");
        assert_eq!((line, why), (2, format!("malformed number near '{bad}'")));
    }
}

#[test]
fn newer_operators_are_not_known() {
    for bad in ["a // b", "a & b", "a << b", "~a"] {
        assert!(translate(bad.as_bytes()).is_err(), "{bad}");
    }
    assert_eq!(text("a ~= b"), "a ~= b");
}

#[test]
fn nothing_runs_when_a_scope_is_left() {
    for bad in [
        "local x <close> = t",
        "local a, b <const> = 1, 2",
        "local x --[[c]] <close> = t",
        "do local x<close>=t end",
    ] {
        assert_eq!(
            translate(bad.as_bytes()),
            Err((1, "unexpected symbol near '<'".into())),
            "{bad}"
        );
    }
    for same in [
        "local a = b < c",
        "local function f(a) return a < b end",
        "local x\nif x < y then end",
        "local x\nreturn a < b",
        "local x, y repeat until x < y",
        "for i = a, b do x = i < j end",
        "while a < b do end",
        "local a, b = c < d, 1 < 2",
    ] {
        let same = same.replace('1', "0x1").replace('2', "0x2");
        assert_eq!(text(&same), same);
    }
    const THREE: &str = " (function(f, s, c) return f, s, c end)(";
    assert_eq!(
        text("for k in pairs(t) do x = k end"),
        format!("for k in{THREE} pairs(t) ) do x = k end")
    );
    assert_eq!(
        text("for k in f(function() while a do end for i in g do end end) do end"),
        format!(
            "for k in{THREE} f(function() while a do end for i in{THREE} g ) do end end) ) do end"
        )
    );
    assert_eq!(
        text("repeat for a in b do repeat until c end until d"),
        format!("repeat for a in{THREE} b ) do repeat until c end until d")
    );
}
