#!/usr/bin/env bash
# bzfs's own integration tests, which its wheel contains: they make two pools, snapshots, bookmarks, encrypted data sets and volumes,
# replicate, resume, prune and compare them. BZFS="test_… test_…:encrypted" names those to run, BZFS=all means all of LocalTestCase, plain
# and encrypted (minutes); else a few.
. "$(dirname "$0")/lib.sh"
venv bzfs bzfs==1.25.0
has pv:pv zstd:zstd mbuffer:mbuffer sudo:sudo ps:procps

# They write below the home directory of the user database: a layer over it.
mkdir -p "$T/.own/upper" "$T/.own/layer"
mount -t overlay consumers -o "lowerdir=/root,upperdir=$T/.own/upper,workdir=$T/.own/layer" /root || cannot "cannot lay a folder over /root"
mkdir -p /root/.ssh
export HOME=/root # they use sudo, which takes what else tells of a place for state away
unset XDG_STATE_HOME
rm -rf /root/.local/state/zuse
installed
mounts_before=$(cut -d ' ' -f 2 /proc/mounts | sort)
made=(/wb_src /wb_dst)
for pool in "${made[@]}"; do [ ! -e "$pool" ] || cannot "$pool is there already"; done

cat >run.py <<'END'
import sys, unittest
from bzfs_main.loggers import set_logging_runtime_defaults
from bzfs_tests.itest.test_local import LocalTestCase

def params(encrypted):
    return {"ssh_mode": "local", "verbose": True, "min_pipe_transfer_size": 1024**2, "affix": "", "skip_missing_snapshots": "continue",
            "no_privilege_elevation": False, "encrypted_dataset": encrypted}

class Result(unittest.TextTestResult):
    def say(self, word, test, err=None):
        print(f"bzfs: {word} {test.id().split('.', 2)[2]}{' encrypted' if (test.param or {}).get('encrypted_dataset') else ''}", flush=True)
        if err is not None:
            print("    " + self._exc_info_to_string(err, test)[-2000:].replace("\n", "\n    "), flush=True)
    def addSuccess(self, test): super().addSuccess(test); self.say("right", test)
    def addError(self, test, err): super().addError(test, err); self.say("WRONG", test, err)
    def addFailure(self, test, err): super().addFailure(test, err); self.say("WRONG", test, err)
    def addSkip(self, test, reason): super().addSkip(test, reason); self.say(f"skipped ({reason})", test)

if sys.argv[1:] == ["all"]:
    sys.argv[1:] = [n + e for e in ("", ":encrypted") for n in unittest.TestLoader().getTestCaseNames(LocalTestCase)]
set_logging_runtime_defaults()
# What needs an sshd of this machine's.
ssh = {"test_dquote_over_real_ssh_backslash_backtick", "test_jobrunner_flat_simple"}
names = [n for n in sys.argv[1:] if n.removesuffix(":encrypted") not in ssh]
suite = unittest.TestSuite()
for name in names:
    suite.addTest(LocalTestCase(name.removesuffix(":encrypted"), param=params(name.endswith(":encrypted"))))
result = unittest.TextTestRunner(stream=open("stderr", "w"), resultclass=Result, verbosity=0).run(suite)
wrong = len(result.errors) + len(result.failures)
print(f"bzfs: {result.testsRun - wrong - len(result.skipped)} right, {wrong} wrong, {len(result.skipped)} skipped")
sys.exit(wrong != 0 or result.testsRun == 0)
END
few='test_basic_replication_dataset_with_spaces test_basic_replication_flat_simple test_basic_replication_flat_send_recv_flags
    test_complex_replication_flat_use_bookmarks test_continuity_recovers_from_temporary_bookmarks
    test_continuity_survives_resumable_full_send test_send_full_resume_recv test_send_incr_resume_recv
    test_full_replication_failure_skips_descendants_and_recovers test_rollback_dst_snapshots_flat_with_injected_recv_token1'
got=0
# shellcheck disable=SC2086
python run.py ${BZFS:-$few} >run.out 2>run.err </dev/null || got=$?
grep '^bzfs: .*skipped' run.out
grep -A 40 '^bzfs: WRONG' run.out | grep -v '^bzfs: right'
is "$got" 0 "status of bzfs's tests ($(tail -n 1 run.out; tail -n 2 run.err))"
[ -z "${KEEP:-}" ] || cp run.out run.err "$KEEP"
for pool in $(zpool list -H -o name); do ok zpool destroy "$pool"; done
ended wb_src wb_dst
