//! Channel programs: the examples and error cases of the format notes (chapter 06c) with the output
//! they document.
//!
//! | section | what | test |
//! |---|---|---|
//! | 1 | options, operands, files, pools | `the_command_refuses_in_the_documented_words` |
//! | 1.1 | success output, text and JSON | `values_are_printed_as_documented`; `administration.rs` |
//! | 1.2 | run-time, syntax, limit and return-value errors | `errors_have_their_texts_and_traces`, `errors_are_those_of_openzfs`, `return_values_are_refused_as_documented`; `administration.rs` |
//! | 2 | numbers, globals, libraries, coroutines, errno names, instruction count | `the_language_is_that_of_the_notes` |
//! | 3 | argument errors of every kind, dataset arguments | `arguments_are_checked_in_the_documented_words` |
//! | 3.1 | `exists`, `list.*`, `get_prop` | `properties_are_read_as_documented`, `datasets_and_what_belongs_to_them_are_listed_as_documented`, `a_list_is_that_of_the_beginning_of_the_program`, `system_properties_are_those_of_the_notes` |
//! | 3.2 | every code of `zfs.sync` and `zfs.check` in the table | `changes_return_the_documented_codes`, `checks_look_at_nothing_that_needs_the_sync` |
//! | 3.3 | one txg, nothing undone by an error | `an_error_undoes_nothing`; `administration.rs` |
//! | 1.2 | stopped by a limit or a signal: nothing is changed | `stopped.rs` |
//! | 4 | the four examples | `the_examples_print_what_is_printed_there` |
//!
//! Bad arguments (options that are no numbers, too few operands) are reported in the words of all
//! commands. Reason and exit code are the documented ones. Left out: EPERM (Zuse needs no root),
//! results too large for a caller's buffer (there is none), the debug log's text (3.1). The notes
//! do not verify quota properties by id.

use crate::support::TestEnv;

const DONE: &str = "Channel program fully executed and produced output:\n";
const NOTHING: &str = "Channel program fully executed and did not produce output.\n";
const FAILED: &str = "Channel program execution failed:\n";
const AT: &str = "[string \"channel program\"]";

/// Runs a program; returns its output on both streams.
fn program(env: &TestEnv, options: &str, text: &str) -> String {
    env.write("p.lua", text.as_bytes());
    let ran = env.run(&format!("zfs program{options} tank p.lua"));
    if ran.code == 0 { ran.out } else { ran.err }
}

/// The result of a program: the lines below `return:`, without their first indents.
fn returned(env: &TestEnv, options: &str, text: &str) -> String {
    let printed = program(env, options, text);
    let body = printed
        .strip_prefix(DONE)
        .unwrap_or_else(|| panic!("{text}: {printed}"));
    let lines = body.lines().skip(1);
    lines
        .map(|l| l.strip_prefix("        ").unwrap_or(l))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A program that fails with a message at a line, with its stack.
fn fails(env: &TestEnv, options: &str, text: &str, message: &str) {
    let printed = program(env, options, text);
    let begins = format!("{FAILED}{message}\n");
    assert!(
        printed.starts_with(&begins),
        "{text}: {printed} is not {message}"
    );
}

#[test]
fn the_command_refuses_in_the_documented_words() {
    let env = TestEnv::with_pool();
    env.write("p.lua", b"return 1");
    for line in ["-t x tank p.lua", "-m 1z tank p.lua"] {
        let word = line.split(' ').nth(1).expect("a word");
        let text = env.fails(2, &format!("zfs program {line}"));
        assert!(
            text.contains(&format!("invalid argument '{word}': expected integer\n")),
            "{text}"
        );
    }
    env.fails(2, "zfs program tank");
    let text = env.fails(1, "zfs program tank none.lua");
    assert!(text.starts_with("cannot open 'none.lua': "), "{text}");
    let text = env.fails(1, "zfs program nopool p.lua");
    assert!(
        text.starts_with("cannot open 'nopool': no such pool\n")
            && text.ends_with("cannot open pool 'nopool'\n"),
        "{text}"
    );
    for (options, done) in [
        ("-t 0x3e8", true),
        ("-t 01750", true),
        ("-t 0", false),
        ("-t 100000001", false),
        ("-m 0", false),
        ("-m 104857601", false),
        ("-m 104857600", true),
    ] {
        let ran = env.run(&format!("zfs program {options} tank p.lua"));
        match done {
            true => assert_eq!(ran.out, format!("{DONE}    return: 1\n"), "{options}"),
            false => assert_eq!(
                ran.err,
                format!("{FAILED}Invalid instruction or memory limit.\n"),
                "{options}"
            ),
        }
    }
}

#[test]
fn values_are_printed_as_documented() {
    let env = TestEnv::with_pool();
    for (text, printed) in [
        ("return {}", "    return:\n"),
        ("return {a={}}", "    return:\n        a:\n"),
        ("return 'two\\nlines'", "    return: 'two\nlines'\n"),
        ("return true", "    return: true\n"),
        ("return false", "    return: false\n"),
        ("return {[true]=1}", "    return:\n        true: 1\n"),
        ("return -5", "    return: -5\n"),
    ] {
        assert_eq!(
            program(&env, "", text),
            format!("{DONE}{printed}"),
            "{text}"
        );
    }
    assert_eq!(program(&env, "", "return"), NOTHING);
    assert_eq!(program(&env, " -j", "x = 1"), "{}");
    assert_eq!(program(&env, " -j", "return nil"), "{\"return\":true}");
    assert_eq!(
        program(&env, " -j", "return {1, 'a \"b\"', false, {x=2}}"),
        "{\"return\":{\"1\":1,\"2\":\"a \\\"b\\\"\",\"3\":false,\"4\":{\"x\":2}}}"
    );
    assert_eq!(
        program(&env, "", "args = ...; return next(args) == nil"),
        format!("{DONE}    return: true\n")
    );
}

#[test]
fn errors_have_their_texts_and_traces() {
    let env = TestEnv::with_pool();
    for (text, message) in [
        ("assert(false)", "assertion failed!"),
        ("x = 'x' .. nil", "attempt to concatenate a nil value"),
        ("x = 1/0", "attempt to divide by zero"),
        ("x = 1%0", "attempt to perform 'n%0'"),
        (
            "zfs.sync.nosuch()",
            "attempt to call field 'nosuch' (a nil value)",
        ),
        ("string.format('%f', 1)", "invalid option '%f' to 'format'"),
    ] {
        let printed = program(&env, "", text);
        let first = printed
            .strip_prefix(FAILED)
            .and_then(|p| p.lines().next())
            .unwrap_or("");
        assert!(
            first.starts_with(&format!("{AT}:1: ")) && first.ends_with(message),
            "{text}: {printed}"
        );
        assert!(
            printed.contains("\nstack traceback:\n"),
            "{text}: {printed}"
        );
    }
    let printed = program(&env, "", "error({})");
    assert!(
        printed.starts_with(&format!("{FAILED}stack traceback:\n")),
        "{printed}"
    );
    fails(
        &env,
        "",
        "x = = 1",
        &format!("{AT}:1: unexpected symbol near '='"),
    );
    fails(
        &env,
        "",
        "x = 1e3",
        &format!("{AT}:1: malformed number near '1e3'"),
    );
    fails(
        &env,
        "",
        "local function f() return 1 + f() end f()",
        "Memory limit exhausted.",
    );
    let printed = program(&env, "", "while true do end");
    assert!(
        printed.ends_with("\n10000100 Lua instructions\n"),
        "{printed}"
    );
}

#[test]
fn return_values_are_refused_as_documented() {
    let env = TestEnv::with_pool();
    let deep = "local t = {} for i = 1, 25 do t = {t} end return t";
    for (text, message) in [
        (
            "return zfs.get_prop('tank', 'used')",
            "Multiple return values not supported",
        ),
        (
            "return coroutine.create(function() end)",
            "Invalid value type 'thread' for key 'return'",
        ),
        (
            "return {a=function() end}",
            "Invalid value type 'function' for key 'a'",
        ),
        ("return {[{}]=1}", "Invalid key type 'table' in table"),
        (
            "return {[true]=1, ['true']=2}",
            "Collision of key 'true' in table",
        ),
        (deep, "Maximum table depth (20) exceeded for table"),
    ] {
        assert_eq!(
            program(&env, "", text),
            format!("{FAILED}{message}\n"),
            "{text}"
        );
    }
    assert_eq!(
        program(&env, "", "return (zfs.get_prop('tank', 'type'))"),
        format!("{DONE}    return: 'filesystem'\n")
    );
}

#[test]
fn the_language_is_that_of_the_notes() {
    let env = TestEnv::with_pool();
    let there = "assert error getmetatable ipairs next pairs rawequal rawget rawlen rawset select setmetatable \
        tonumber tostring type _G _VERSION coroutine string table zfs";
    let gone = "collectgarbage print pcall xpcall load loadstring loadfile dofile require module math os io debug bit32 unpack";
    let numbers = "EPERM 1 ENOENT 2 ESRCH 3 EINTR 4 EIO 5 ENXIO 6 E2BIG 7 ENOEXEC 8 EBADF 9 ECHILD 10 EAGAIN 11 ENOMEM 12 EACCES 13 \
        EFAULT 14 ENOTBLK 15 EBUSY 16 EEXIST 17 EXDEV 18 ENODEV 19 ENOTDIR 20 EISDIR 21 EINVAL 22 ENFILE 23 EMFILE 24 ENOTTY 25 \
        ETXTBSY 26 EFBIG 27 ENOSPC 28 ESPIPE 29 EROFS 30 EMLINK 31 EPIPE 32 EDOM 33 ERANGE 34 EDEADLK 35 ENAMETOOLONG 36 ENOLCK 37 \
        ENOTSUP 95 EDQUOT 122 ECANCELED 125";
    let words: Vec<&str> = numbers.split_whitespace().collect();
    let pairs: Vec<String> = words
        .chunks(2)
        .map(|p| format!("{{'{}', {}}}", p[0], p[1]))
        .collect();
    let names = |list: &str| {
        list.split_whitespace()
            .map(|n| format!("'{n}'"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let text = format!(
        "local wrong = {{}}
        for _, n in ipairs({{{}}}) do if _G[n] == nil then wrong[#wrong + 1] = n end end
        for _, n in ipairs({{{}}}) do if _G[n] ~= nil then wrong[#wrong + 1] = n end end
        for _, p in ipairs({{{}}}) do if _G[p[1]] ~= p[2] then wrong[#wrong + 1] = p[1] end end
        for _, n in ipairs({{'byte', 'char', 'find', 'format', 'gmatch', 'gsub', 'len', 'lower',
            'match', 'rep', 'reverse', 'sub', 'upper'}}) do
            if not string[n] then wrong[#wrong + 1] = n end
        end
        for _, n in ipairs({{'concat', 'insert', 'pack', 'remove', 'sort',
            'unpack'}}) do if not table[n] then wrong[#wrong + 1] = n end end
        for _, n in ipairs({{'create', 'resume', 'running', 'status', 'wrap',
            'yield'}}) do if not coroutine[n] then wrong[#wrong + 1] = n end end
        if string.dump then wrong[#wrong + 1] = 'dump' end
        return wrong",
        names(there),
        names(gone),
        pairs.join(", ")
    );
    assert_eq!(program(&env, "", &text), format!("{DONE}    return:\n"));
    assert_eq!(
        returned(
            &env,
            "",
            "local ok, m = coroutine.resume(coroutine.create(function() error('caught') end)) return {ok, m}"
        ),
        format!("1: false\n2: '{AT}:1: caught'")
    );
    assert_eq!(
        returned(
            &env,
            "",
            "local t = setmetatable({}, {__tostring = function() return 'me' end, __index = function(_, k) return k .. k end}) \
            do goto over end error('here') ::over:: return {tostring(t), t.ab, 2^-1, string.format('%d %x %X %o %c %s %q %%', 10, 255, 255, 8, 65, 's', 'q')}"
        ),
        "1: 'me'\n2: 'abab'\n3: 0\n4: '10 ff FF 10 A s \"q\" %'"
    );
    assert_eq!(
        program(&env, " -m 20000", "return 1"),
        format!("{DONE}    return: 1\n")
    );
}

#[test]
fn arguments_are_checked_in_the_documented_words() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/data");
    env.ok("zfs snapshot tank/data@mon");
    const DESTROY: &str = "destroy{<filesystem | snapshot(string)>, defer=(boolean)}";
    for (text, message) in [
        ("zfs.exists{}", "too few arguments: exists{<dataset(string)>}".to_owned()),
        ("zfs.get_prop('a')", "too few arguments: get_prop{<dataset(string)>, <property(string)>}".into()),
        ("zfs.sync.clone('a')", "too few arguments: clone{<snapshot(string)>, <newdataset(string)>}".into()),
        ("zfs.sync.promote()", "too few arguments: promote{<clone(string)>}".into()),
        ("zfs.sync.rollback()", "too few arguments: rollback{<filesystem(string)>}".into()),
        ("zfs.sync.rename_snapshot('a')", "too few arguments: rename_snapshot{<filesystem | volume(string)>, <oldsnapname(string)>, <newsnapname(string)>}".into()),
        ("zfs.sync.inherit('a')", "too few arguments: inherit{<dataset(string)>, <property(string)>}".into()),
        ("zfs.sync.bookmark('a')", "too few arguments: bookmark{<snapshot | bookmark(string)>, <bookmark(string)>}".into()),
        ("zfs.sync.set_prop('a')", "too few arguments: set_prop{<dataset(string)>, <property(string)>, <value(string)>}".into()),
        ("zfs.sync.destroy{'tank/data@mon', foo=true}", format!("invalid kwarg 'foo': {DESTROY}")),
        ("zfs.sync.destroy{'tank/data@mon', defer=1}", format!("kwarg 'defer' wrong type (is 'number', expected 'boolean'): {DESTROY}")),
        ("zfs.sync.destroy{'tank/data', defer=true}", "'deferred' kwarg only supported for snapshots: tank/data".into()),
        ("zfs.list.children('tank/none')", "bad argument #1 to 'children' (no such dataset 'tank/none')".into()),
        ("zfs.list.children('other/x')", "bad argument #1 to 'children' (dataset 'other/x' is not in the target pool 'tank')".into()),
        ("zfs.list.clones('tank/data')", "bad argument #1 to 'clones' (tank/data is not a snapshot)".into()),
        ("zfs.list.holds('tank/data')", "bad argument #1 to 'holds' (tank/data is not a snapshot)".into()),
        ("zfs.list.snapshots('tank/data@mon')", "bad argument #1 to 'snapshots' (argument tank/data@mon cannot be a snapshot)".into()),
    ] {
        fails(&env, "", text, &format!("{AT}:1: {message}"));
    }
    let printed = program(&env, "", "zfs.exists('other/x')");
    assert!(
        printed.contains("dataset 'other/x' is not in the target pool"),
        "{printed}"
    );
    fails(
        &env,
        " -n",
        "zfs.sync.destroy('tank/data@mon')",
        &format!(
            "{AT}:1: running functions from the zfs.sync submodule requires passing sync=TRUE to lzc_channel_program() (i.e. do not specify the \"-n\" command line argument)"
        ),
    );
}

/// A file system with a snapshot, bookmark, clone and hold, and a volume.
fn with_data() -> TestEnv {
    let env = TestEnv::with_pool();
    env.ok(
        "zfs create -o compression=lz4 -o mountpoint=/data -o com.example:owner=alice tank/data",
    );
    env.ok("zfs create tank/data/below");
    env.ok("zfs create -V 16M tank/vol");
    env.ok("zfs snapshot tank/data@mon");
    env.ok("zfs clone tank/data@mon tank/clone");
    env.ok("zfs bookmark tank/data@mon tank/data#mark");
    env.ok("zfs hold keep tank/data@mon");
    env
}

#[test]
fn properties_are_read_as_documented() {
    let env = with_data();
    for (call, value, source) in [
        ("'tank/data','compression'", "'lz4'", "'tank/data'"),
        ("'tank/data','atime'", "'on'", "'default'"),
        ("'tank/data','quota'", "0", "'default'"),
        ("'tank/data','mountpoint'", "'/data'", "'tank/data'"),
        (
            "'tank/data/below','mountpoint'",
            "'/data/below'",
            "'tank/data'",
        ),
        ("'tank/data','compressratio'", "100", ""),
        ("'tank/vol','volsize'", "16777216", "'tank/vol'"),
        ("'tank/data','volsize'", "", ""),
        ("'tank/data','filesystem_count'", "", ""),
        ("'tank/data','type'", "'filesystem'", ""),
        ("'tank/vol','type'", "'volume'", ""),
        ("'tank/data@mon','type'", "'snapshot'", ""),
        ("'tank/data','written@mon'", "0", "'tank/data'"),
        ("'tank/data','com.example:owner'", "'alice'", "'tank/data'"),
        (
            "'tank/data/below','com.example:owner'",
            "'alice'",
            "'tank/data'",
        ),
        ("'tank/data','com.example:none'", "", ""),
    ] {
        let text = format!(
            "local v, s = zfs.get_prop({call}) return {{v == nil and '-' or v, s == nil and '-' or s}}"
        );
        let or = |v: &str| {
            if v.is_empty() {
                "'-'".to_owned()
            } else {
                v.to_owned()
            }
        };
        assert_eq!(
            returned(&env, "", &text),
            format!("1: {}\n2: {}", or(value), or(source)),
            "{call}"
        );
    }
    assert_eq!(
        returned(&env, "", "return (zfs.get_prop('tank/data@mon', 'clones'))"),
        "1: 'tank/clone'"
    );
}

#[test]
fn datasets_and_what_belongs_to_them_are_listed_as_documented() {
    let env = with_data();
    assert_eq!(
        returned(
            &env,
            "",
            "return {zfs.exists('tank/data'), zfs.exists('tank/vol'), zfs.exists('tank/data@mon'), zfs.exists('tank/data#mark'), zfs.exists('tank/x')}"
        ),
        "1: true\n2: true\n3: true\n4: false\n5: false"
    );
    fails(
        &env,
        "",
        "zfs.get_prop('tank/data#mark', 'guid')",
        &format!("{AT}:1: bad argument #1 to 'get_prop' (no such dataset 'tank/data#mark')"),
    );
    let all = |call: &str| {
        let text = format!(
            "local t = {{}} for n in zfs.list.{call} do t[#t + 1] = n end table.sort(t) return t"
        );
        returned(&env, "", &text)
    };
    assert_eq!(
        all("children('tank')"),
        "1: 'tank/clone'\n2: 'tank/data'\n3: 'tank/vol'"
    );
    assert_eq!(all("snapshots('tank/data')"), "1: 'tank/data@mon'");
    assert_eq!(all("clones('tank/data@mon')"), "1: 'tank/clone'");
    assert_eq!(all("bookmarks('tank/data')"), "1: 'tank/data#mark'");
    assert_eq!(
        returned(
            &env,
            "",
            "local t = {} for tag, when in zfs.list.holds('tank/data@mon') do t[#t + 1] = tag t[#t + 1] = type(when) end return t"
        ),
        "1: 'keep'\n2: 'number'"
    );
    for call in ["user_properties", "properties"] {
        let text = format!(
            "local t = {{}} for n, v, s in zfs.list.{call}('tank/data/below') do t[#t + 1] = n t[#t + 1] = v t[#t + 1] = s end return t"
        );
        assert_eq!(
            returned(&env, "", &text),
            "1: 'com.example:owner'\n2: 'alice'\n3: 'tank/data'"
        );
    }
}

#[test]
fn a_list_is_that_of_the_beginning_of_the_program() {
    let env = with_data();
    assert_eq!(program(&env, "", "zfs.debug('a word')"), NOTHING);
    assert_eq!(
        returned(
            &env,
            "",
            "local n = 0 for s in zfs.list.snapshots('tank/clone') do n = n + 1 end \
            zfs.sync.snapshot('tank/clone@new') for s in zfs.list.snapshots('tank/clone') do n = n + 10 zfs.sync.destroy(s) end \
            for s in zfs.list.snapshots('tank/clone') do n = n + 100 end return {n}"
        ),
        "1: 10"
    );
}

const FILESYSTEM: &str = "type creation used available referenced compressratio quota reservation recordsize mountpoint sharenfs checksum \
    compression atime devices exec setuid readonly zoned snapdir aclmode aclinherit createtxg canmount xattr copies version utf8only \
    normalization casesensitivity vscan nbmand sharesmb refquota refreservation guid primarycache secondarycache usedbysnapshots \
    usedbydataset usedbychildren usedbyrefreservation logbias objsetid dedup mlslabel sync dnodesize refcompressratio written logicalused \
    logicalreferenced volmode filesystem_limit snapshot_limit filesystem_count snapshot_count snapdev acltype context fscontext defcontext \
    rootcontext relatime redundant_metadata overlay receive_resume_token encryption keylocation keyformat pbkdf2iters encryptionroot \
    keystatus special_small_blocks redact_snaps snapshots_changed prefetch direct longname defaultuserquota defaultgroupquota \
    defaultprojectquota defaultuserobjquota defaultgroupobjquota defaultprojectobjquota";
const VOLUME: &str = "type creation used available referenced compressratio reservation volsize volblocksize checksum compression readonly \
    createtxg copies refreservation guid primarycache secondarycache usedbysnapshots usedbydataset usedbychildren usedbyrefreservation \
    logbias objsetid dedup mlslabel sync refcompressratio written logicalused logicalreferenced volmode snapshot_limit snapshot_count \
    snapdev context fscontext defcontext rootcontext redundant_metadata receive_resume_token encryption keylocation keyformat pbkdf2iters \
    encryptionroot keystatus special_small_blocks redact_snaps snapshots_changed prefetch volthreading";
const SNAPSHOT: &str = "type creation used referenced compressratio volsize devices exec setuid createtxg xattr version utf8only \
    normalization casesensitivity nbmand guid primarycache secondarycache defer_destroy userrefs objsetid mlslabel refcompressratio written \
    clones logicalreferenced acltype context fscontext defcontext rootcontext encryption encryptionroot keystatus redact_snaps prefetch";

#[test]
fn what_owners_use_and_may_use_can_be_asked_for() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs create -V 8M tank/v");
    env.write("f", &[7; 3 << 17]);
    env.ok("cp f tank/a:/f");
    env.ok("zfs set userquota@0=10M groupobjquota@50=7 defaultprojectquota=5M tank/a");
    env.ok("zfs snapshot tank/a@s");
    let used = env.ok("zfs get -Hp -o value userused@0 tank/a");
    let ask = |dataset: &str, property: &str| {
        let text = format!("local v, s = zfs.get_prop('{dataset}', '{property}') return {{v, s}}");
        returned(&env, "", &text)
    };
    let said = |value: &str| format!("1: {value}\n2: 'tank/a'");
    assert!(used.trim().parse::<u64>().unwrap() > 0, "{used}");
    assert_eq!(ask("tank/a", "userused@0"), said(used.trim()));
    assert_eq!(ask("tank/a", "userquota@0"), said("10485760"));
    assert_eq!(ask("tank/a", "groupobjquota@50"), said("7"));
    assert_eq!(ask("tank/a", "projectquota@3"), said("5242880"));
    assert_eq!(ask("tank/a", "groupquota@50"), said("0"));
    assert_eq!(ask("tank/a", "userobjused@0"), said("2"));
    assert_eq!(ask("tank/a", "userused@77"), said("0"));
    assert_eq!(ask("tank/a@s", "userquota@0"), "1: 10485760\n2: 'tank/a@s'");
    assert_eq!(ask("tank/v", "userused@0"), "");
    fails(
        &env,
        "",
        "return (zfs.get_prop('tank/a', 'userquota@bob'))",
        &format!("{AT}:1: 'userquota@bob' is not a valid property"),
    );
}

#[test]
fn system_properties_are_those_of_the_notes() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/data");
    env.ok("zfs create -V 16M tank/vol");
    env.ok("zfs snapshot tank/data@mon");
    for (dataset, documented) in [("tank/data", FILESYSTEM), ("tank/vol", VOLUME)] {
        let text = format!("return table.concat(zfs.list.system_properties('{dataset}'), ' ')");
        let printed = program(&env, "", &text);
        let names = printed.split('\'').nth(1).unwrap_or_default();
        let sorted = |list: &str| {
            let mut all: Vec<String> = list.split_whitespace().map(str::to_owned).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(names), sorted(documented), "{dataset}");
    }
    let printed = program(
        &env,
        "",
        "return table.concat(zfs.list.system_properties('tank/data@mon'), ' ')",
    );
    for name in SNAPSHOT.split_whitespace().filter(|n| *n != "volsize") {
        assert!(
            printed.split(['\'', ' ']).any(|n| n == name),
            "{name}: {printed}"
        );
    }
}

/// Datasets with snapshots, one of which is held and one has a clone.
fn with_histories() -> TestEnv {
    let env = TestEnv::with_pool();
    for name in ["tank/a", "tank/a/child", "tank/b", "tank/c", "tank/empty"] {
        env.ok(&format!("zfs create {name}"));
    }
    env.ok("zfs snapshot tank/a@held tank/b@cloned tank/c@mon");
    env.ok("zfs snapshot tank/b@other");
    env.ok("zfs hold keep tank/a@held");
    env.ok("zfs clone tank/b@cloned tank/clone");
    env.ok("zfs snapshot tank/clone@other");
    env
}

#[test]
fn changes_return_the_documented_codes() {
    let env = with_histories();
    let cases = [
        ("destroy('tank/a@held')", 16),
        ("destroy('tank/b@cloned')", 17),
        ("destroy{'tank/b@cloned', defer=true}", 0),
        ("destroy('tank/a')", 16),
        ("destroy('tank')", 17),
        ("destroy('tank/a@none')", 0),
        ("destroy('tank/none')", 2),
        ("destroy('other/x')", 18),
        ("snapshot('tank/a@held')", 17),
        ("snapshot('tank/a')", 22),
        ("snapshot('tank/none@s')", 2),
        ("snapshot('other/x@s')", 18),
        ("snapshot('tank/empty@z1')", 0),
        ("snapshot('tank/empty@z2')", 11),
        ("clone('tank/a@held', 'tank/b')", 17),
        ("clone('tank/a@held', 'tank/none/x')", 2),
        ("clone('tank/a@none', 'tank/x')", 2),
        ("clone('tank/a', 'tank/x')", 22),
        ("clone('other/x@s', 'tank/x')", 18),
        ("promote('tank/a')", 22),
        ("promote('tank/none')", 2),
        ("rollback('tank/a@held')", 22),
        ("rollback('tank/a/child')", 3),
        ("rename_snapshot('tank/b', 'cloned', 'other')", 17),
        ("rename_snapshot('tank/none', 'a', 'b')", 2),
        ("rename_snapshot('tank/b', 'none', 'b')", 0),
        ("inherit('tank/b', 'compression')", 0),
        ("inherit('tank/b', 'quota')", 22),
        ("inherit('tank/b', 'used')", 22),
        ("inherit('tank/b', 'nosuch')", 22),
        ("inherit('tank/none', 'a:b')", 2),
        ("bookmark('tank/a@held', 'tank/a#m')", 0),
        ("bookmark('tank/a@held', 'tank/a#m')", 17),
        ("bookmark('tank/a@held', 'tank/b#m')", 1039),
        ("bookmark('tank/a@none', 'tank/a#n')", 2),
        ("bookmark('tank/a@held', 'tank/a')", 22),
        ("set_prop('tank/b', 'compression', 'on')", 22),
        ("set_prop('tank/none', 'a:b', 'v')", 2),
        ("set_prop('tank/b', 'a:b', ('x'):rep(8192))", 7),
        ("set_prop('tank/b', 'a:' .. ('x'):rep(300), 'v')", 36),
        ("set_prop('tank/b@other', 'a:b', 'v')", 0),
    ];
    let calls: Vec<String> = cases
        .iter()
        .map(|(call, _)| format!("(zfs.sync.{call})"))
        .collect();
    let got = returned(&env, "", &format!("return {{{}}}", calls.join(",\n")));
    for ((call, code), line) in cases.iter().zip(got.lines()) {
        assert_eq!(
            line.split(": ").nth(1),
            Some(code.to_string().as_str()),
            "{call}"
        );
    }
    let long = "x".repeat(300);
    assert_eq!(
        returned(
            &env,
            "",
            &format!("return {{(zfs.sync.snapshot('tank/a@{long}'))}}")
        ),
        "1: 36"
    );
}

#[test]
fn checks_look_at_nothing_that_needs_the_sync() {
    let env = with_histories();
    assert_eq!(
        returned(
            &env,
            " -n",
            "return {(zfs.check.snapshot('tank/a@held')), (zfs.check.promote('tank/clone'))}"
        ),
        "1: 0\n2: 0"
    );
    // In earnest the snapshots of both are compared.
    let text = "local e, d = zfs.sync.promote('tank/clone'); return {e, d}";
    env.ok("zfs snapshot tank/clone@cloned");
    assert_eq!(returned(&env, "", text), "1: 17\n2:\n    1: 'cloned'");
}

#[test]
fn an_error_undoes_nothing() {
    let env = TestEnv::with_pool();
    fails(
        &env,
        "",
        "zfs.sync.snapshot('tank@kept') error('x')",
        &format!("{AT}:1: x"),
    );
    env.ok("zfs list tank@kept");
}

#[test]
fn the_examples_print_what_is_printed_there() {
    let env = TestEnv::with_pool();
    for name in [
        "tank/w",
        "tank/w/x",
        "tank/w/x/y",
        "tank/data",
        "tank/empty",
        "tank/o",
    ] {
        env.ok(&format!("zfs create {name}"));
    }
    env.ok("zfs snapshot -r tank/w@s");
    let text = "function destroy_recursive(root)
    for child in zfs.list.children(root) do
        destroy_recursive(child)
    end
    for snap in zfs.list.snapshots(root) do
        zfs.sync.destroy(snap)
    end
    zfs.sync.destroy(root)
end
destroy_recursive(\"tank/w\")
";
    assert_eq!(program(&env, "", text), NOTHING);
    env.fails(1, "zfs list tank/w");

    env.ok("zfs snapshot tank/data@mon");
    env.ok("zfs hold keep tank/data@mon");
    env.ok("zfs snapshot tank/data@tue");
    let text = "succeeded = {}
failed = {}
for snap in zfs.list.snapshots(\"tank/data\") do
    err = zfs.check.destroy(snap)
    if (err ~= 0) then failed[snap] = err else succeeded[snap] = true end
end
results = {}
results[\"succeeded\"] = succeeded
results[\"failed\"] = failed
return results
";
    let (good, bad) = (
        "succeeded:\n    tank/data@tue: true",
        "failed:\n    tank/data@mon: 16",
    );
    // The order of a table's names is not defined.
    let got = returned(&env, " -n", text);
    assert!(
        got == format!("{good}\n{bad}") || got == format!("{bad}\n{good}"),
        "{got}"
    );
    let got = program(&env, " -nj", text);
    let (good, bad) = (
        "\"succeeded\":{\"tank/data@tue\":true}",
        "\"failed\":{\"tank/data@mon\":16}",
    );
    assert!(
        got == format!("{{\"return\":{{{good},{bad}}}}}")
            || got == format!("{{\"return\":{{{bad},{good}}}}}"),
        "{got}"
    );

    let text = "e, d = zfs.sync.rollback(\"tank/data\"); return {e, d}";
    assert_eq!(
        returned(&env, "", text),
        "1: 0\n2:\n    target: 'tank/data@tue'"
    );

    env.ok("zfs snapshot tank/o@mon");
    env.ok("zfs snapshot tank/o@from");
    env.ok("zfs clone tank/o@from tank/c2");
    env.ok("zfs snapshot tank/c2@mon");
    env.ok("zfs hold keep tank/c2@mon");
    let text =
        "e, d = zfs.check.promote(\"tank/c2\"); return {e, d}     -- both have a snapshot @mon";
    assert_eq!(returned(&env, "", text), "1: 17\n2:\n    1: 'mon'");
    let text = "return {zfs.check.destroy(\"tank/c2@mon\"),              -- held
        (zfs.check.destroy{\"tank/c2@mon\", defer=true}),
        (zfs.sync.snapshot(\"tank/empty@z1\")),
        (zfs.sync.snapshot(\"tank/empty@z2\")),          -- same dataset, same txg
        (zfs.sync.destroy(\"tank/empty@z1\"))}
";
    assert_eq!(returned(&env, "", text), "1: 16\n2: 0\n3: 0\n4: 11\n5: 0");
}

#[test]
fn tables_say_what_division_and_remainder_are_on_them() {
    let env = TestEnv::with_pool();
    let meta = "__mod = function(a, b) return 31 end, __div = function(a, b) return 32 end, \
                __mul = function(a, b) return 5 end";
    let text = format!(
        "local t = setmetatable({{}}, {{{meta}}}) return {{t % 1, t / 1, 1 % t, 1 / t, t * t, 7 / 2, 7 % 4}}"
    );
    assert_eq!(
        returned(&env, "", &text),
        "1: 31\n2: 32\n3: 31\n4: 32\n5: 5\n6: 3\n7: 3"
    );
    let sum = "return 1 + 'x'";
    let why = "attempt to perform arithmetic on a string value";
    fails(&env, "", sum, &format!("{AT}:1: {why}"));
    let table = "return {} % 2";
    fails(
        &env,
        "",
        table,
        &format!("{AT}:1: attempt to perform arithmetic on a table value"),
    );
}

/// The result or the message with the frames is the same as in OpenZFS 2.3's kernel for the same
/// program.
#[test]
fn errors_are_those_of_openzfs() {
    let env = TestEnv::with_pool();
    let mut wrong = Vec::new();
    let errors = include_str!("programs/errors.txt").split("\n\n");
    let operands = include_str!("programs/operands.txt").split("\n\n");
    for case in errors.chain(operands) {
        let (text, wanted) = case.trim_end().split_once('\n').expect("a program");
        let printed = program(&env, "", text);
        if printed.trim_end() != wanted {
            wrong.push(format!("{text}\n{printed}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
