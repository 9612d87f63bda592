use std::sync::mpsc::channel;
use std::thread;

use super::*;

/// Where a thread may run.
fn processors(thread: Pid) -> Vec<usize> {
    let set = sched_getaffinity(Some(thread)).unwrap();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}

/// One test, as a process has one state of this.
#[test]
fn who_serves_has_the_processor_and_the_others_have_the_rest_until_it_is_released() {
    let all = processors(gettid());
    let (tell, told) = channel();
    let (end, ended) = channel::<()>();
    let background = thread::spawn(move || {
        let _member = join(Role::Background);
        tell.send(gettid()).unwrap();
        let _ = ended.recv();
    });
    let other = told.recv().unwrap();
    let group = Group::new();
    let me = join(Role::Serving(group));

    background_is_noticed();
    let cpu = all[all.len() - 1];
    if all.len() == 1 {
        assert!(
            !keep(group, Place::On(cpu)),
            "nobody can be kept apart on one processor"
        );
        assert_eq!(
            (processors(gettid()), processors(other)),
            (all.clone(), all)
        );
        return;
    }
    assert!(!keep(group, Place::On(CpuSet::MAX_CPU)));
    assert!(keep(group, Place::On(cpu)));
    assert_eq!(processors(gettid()), [cpu]);
    assert_eq!(processors(other), all[..all.len() - 1]);

    avoid(gettid());
    assert_eq!(processors(gettid()), [cpu], "its role says where");

    // Who comes later is bound as well, whatever it inherits.
    let late = thread::spawn(|| {
        let _member = join(Role::Background);
        processors(gettid())
    });
    assert_eq!(late.join().unwrap(), all[..all.len() - 1]);

    assert!(keep(group, Place::On(all[0])));
    assert_eq!(processors(gettid()), [all[0]]);
    assert_eq!(processors(other), all[1..]);

    release(group);
    assert_eq!(processors(gettid()), all);
    assert_eq!(processors(other), all);

    // Off where this thread is, which stays there meanwhile.
    let mut here = CpuSet::new();
    here.set(all[0]);
    sched_setaffinity(None, &here).unwrap();
    avoid(other);
    assert_eq!(processors(other), all[1..]);
    put_back(other);
    put_back(gettid());
    assert_eq!(
        (processors(gettid()), processors(other)),
        (all.clone(), all.clone())
    );

    // Away from who asks, and the background off their only processor; a deputy may come to where who asks is.
    let rest: Vec<usize> = {
        let core = siblings_of(cpu);
        let all = all.iter().copied();
        all.filter(|cpu| !core.contains(cpu)).collect()
    };
    assert_eq!(has_cores(), !rest.is_empty());
    assert_eq!(keep(group, Place::Off(cpu)), !rest.is_empty());
    assert!(!keep(group, Place::Off(CpuSet::MAX_CPU)));
    if !rest.is_empty() {
        let only = (rest.len() == 1).then_some(rest[0]);
        let others: Vec<usize> = all.iter().copied().filter(|c| Some(*c) != only).collect();
        assert_eq!(
            (processors(gettid()), processors(other)),
            (rest.clone(), others)
        );
        let deputy = thread::spawn(move || {
            let _member = join(Role::Serving(group));
            let mut here = CpuSet::new();
            here.set(rest[0]);
            sched_setaffinity(None, &here).unwrap();
            avoid(gettid());
            let off = processors(gettid());
            put_back(gettid());
            (rest, off, processors(gettid()))
        });
        let (rest, off, back) = deputy.join().unwrap();
        let but_here: Vec<usize> = all.iter().copied().filter(|c| *c != rest[0]).collect();
        assert_eq!((off, back), (but_here, rest));
        release(group);
        assert_eq!(processors(gettid()), all);
    }

    // Others may not, meanwhile.
    assert!(keep(group, Place::On(cpu)) && !keep(Group::new(), Place::On(cpu)));
    release(Group::new());
    assert_eq!(processors(gettid()), [cpu]);
    release(group);

    // Made by one who is bound, a member only when nobody is any more.
    assert!(keep(group, Place::On(cpu)));
    let (go, wait) = channel::<()>();
    let child = thread::spawn(move || {
        wait.recv().unwrap();
        let _member = join(Role::Background);
        processors(gettid())
    });
    release(group);
    go.send(()).unwrap();
    assert_eq!(child.join().unwrap(), all);

    // A thread that has left is not touched any more.
    drop(me);
    assert!(keep(group, Place::On(cpu)));
    assert_eq!(processors(gettid()), all);
    release(group);
    drop(end);
    background.join().unwrap();
}

/// Other tests of this process have work done at the same time.
fn background_is_noticed() {
    let begun = background().0;
    let work = busy();
    assert!(background().1 && background().0 > begun);
    drop(work);
}

#[test]
fn a_list_of_processors_is_read_and_what_is_none_is_left_out() {
    assert_eq!(numbers_in("0\n"), [0]);
    assert_eq!(numbers_in("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
    assert_eq!(numbers_in("x,3,-,4-y,"), [3]);
    assert_eq!(numbers_in(""), [0usize; 0]);
    assert_eq!(
        numbers_in("1-99999999999").len(),
        CpuSet::MAX_CPU,
        "no more than there can be"
    );
    assert!(siblings_of(usize::MAX).contains(&usize::MAX), "itself");
}
