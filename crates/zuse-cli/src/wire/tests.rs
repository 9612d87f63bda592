use super::*;
use std::os::fd::AsFd;

fn streams(out: &fs::File) -> [OwnedFd; 3] {
    let null = || OwnedFd::from(fs::File::open("/dev/null").unwrap());
    [null(), out.as_fd().try_clone_to_owned().unwrap(), null()]
}

fn request() -> Request {
    let argv = vec![b"zuse".to_vec(), b"li\xffst".to_vec()];
    Request::new(argv, b"/tmp".to_vec())
}

#[test]
fn a_command_line_arrives_with_its_streams_and_the_code_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(120));
    fs::create_dir(&deep).unwrap();
    let path = deep.join("1.sock");
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let server = std::thread::spawn(move || {
        let mut peer = listener.accept().unwrap();
        let (request, [_, out, _]) = receive(&mut peer).unwrap();
        take(&mut peer).unwrap();
        assert_eq!(request.argv[1], b"li\xffst");
        assert_eq!(request.cwd, b"/tmp");
        fs::File::from(out).write_all(b"hello").unwrap();
        reply(&mut peer, 7).unwrap();
    });
    let out = fs::File::create(dir.path().join("out")).unwrap();
    assert_eq!(
        forward(&path, &request(), &streams(&out)).unwrap(),
        Sent::Ended(7)
    );
    server.join().unwrap();
    assert_eq!(fs::read(dir.path().join("out")).unwrap(), b"hello");
    assert!(!path.exists());
}

#[test]
fn a_socket_on_which_nobody_listens_is_stale_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1.sock");
    let out = fs::File::create(dir.path().join("out")).unwrap();
    assert_eq!(
        forward(&path, &request(), &streams(&out)).unwrap(),
        Sent::Nobody
    );
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    assert_eq!(
        forward(&path, &request(), &streams(&out)).unwrap(),
        Sent::Nobody
    );
    let listener = Listener::bind(&path).unwrap();
    assert!(is_live(&path));
    assert!(Listener::bind(&path).is_err());
    drop(listener);
}

#[test]
fn a_peer_that_says_nothing_or_too_little_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1.sock");
    let listener = Listener::bind(&path).unwrap();
    let began = Instant::now();
    for said in [
        &b""[..],
        &(1u32 << 20).to_le_bytes(),
        &u32::MAX.to_le_bytes(),
    ] {
        let mut stranger = UnixStream::connect(&path).unwrap();
        let mut peer = listener.accept().unwrap();
        stranger.write_all(said).unwrap();
        assert!(receive(&mut peer).is_err(), "{said:?}");
        drop(stranger);
    }
    assert!(began.elapsed() < 4 * REQUEST_TIME);
}

#[test]
fn a_holder_of_another_version_says_so_and_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1.sock");
    let listener = Listener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let mut peer = listener.accept().unwrap();
        let (request, _) = receive(&mut peer).unwrap();
        assert_ne!(request.version, VERSION);
        turn_away(&mut peer).unwrap();
    });
    let out = fs::File::create(dir.path().join("out")).unwrap();
    let other = Request {
        version: "1 0.0.1".into(),
        ..request()
    };
    assert_eq!(
        forward(&path, &other, &streams(&out)).unwrap(),
        Sent::Strange
    );
    server.join().unwrap();
}

#[test]
fn who_is_asked_to_hand_over_says_whether_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1.sock");
    assert!(matches!(
        ask_to_hand_over(&path, 1),
        Ok(HandoverAnswer::Nobody)
    ));
    let listener = Listener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let mut peer = listener.accept().unwrap();
            let (request, _) = receive(&mut peer).unwrap();
            match request.hand_over {
                Some(1) => hear(&mut peer).unwrap(),
                _ => turn_away(&mut peer).unwrap(),
            }
            let _ = peer.write_all(b"more");
        }
        listener
    });
    assert!(matches!(
        ask_to_hand_over(&path, 2),
        Ok(HandoverAnswer::Strange)
    ));
    let Ok(HandoverAnswer::Agreed(mut stream)) = ask_to_hand_over(&path, 1) else {
        panic!("it can");
    };
    let mut more = [0; 4];
    stream.read_exact(&mut more).unwrap();
    assert_eq!(&more, b"more");

    // The new listener's socket is not removed, and answers with its own process number.
    let listener = server.join().unwrap();
    let fd = listener.as_fd().try_clone_to_owned().unwrap();
    listener.give_away();
    drop(listener);
    assert!(is_live(&path));
    let handed = Listener::handed(fd, &path).unwrap();
    handed.claim().unwrap();
    assert_eq!(process_behind(&path), Some(std::process::id()));
    drop(handed);
    assert!(!path.exists());
}
