# A stream with two directories that contain each other: `ls -R` overflowed the stack, `manifest` did not end, `cp` made directories for
# ever. Now a walk reports the cycle, and returns everything outside of it.
. "$(dirname "$0")/lib.sh"
cp "$CASES/../../testdata/cases/cyc-two.zs" s
ok zuse stream verify s
for what in "ls -R" manifest "extract -C out"; do
    fails 1 timeout -k 1 20 zuse stream $what s
    says "parent" timeout -k 1 20 zuse stream $what s
done
is "$(find out | wc -l | xargs test 100 -gt && echo few)" few "what was extracted"
true
