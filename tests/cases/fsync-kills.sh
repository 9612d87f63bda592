#!/usr/bin/env bash
# The process that holds a mount is killed while programs wait for fsync. Acknowledged data is there afterwards, and databases open.
# FSYNC_KILLS (2) is the number of kills. With POSTGRES=1 a PostgreSQL server under pgbench takes part, as in `make soak`.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
MOUNT_OPTIONS=${MOUNT_OPTIONS-zuse_intent_log=1}
kills=${FSYNC_KILLS:-2}
work=$CASES/fsync-kills.py
pg=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups env -C / PATH="$pg:$PATH" "$@"; }
server() { # start | end | bench | rows
    case $1 in
        start)
            as_postgres pg_ctl -s -w -t 600 -D "$T/m/pg" -l "$T/pg.log" -o "-k /tmp/pg -h ''" start 2>/dev/null
            master=$(head -n 1 m/pg/postmaster.pid)
            ;;
        end)
            kill -QUIT "$master" 2>/dev/null
            for _ in $(seq 100); do kill -0 "$master" 2>/dev/null || break; sleep 0.1; done
            ;;
        bench) as_postgres pgbench -h /tmp/pg -n -c 4 -T 3600 -l --log-prefix=/tmp/pg/done bank >/dev/null 2>&1 ;;
        rows) as_postgres psql -h /tmp/pg -qAt -c 'select count(*) from pgbench_history' bank ;;
    esac
}

disk d 1G
ok zpool create -m none p "$T/d"
mkdir m
chmod 755 .
ok zuse mount -o "allow_other${MOUNT_OPTIONS:+,$MOUNT_OPTIONS}" p m
if [ -n "${POSTGRES:-}" ]; then
    mount -t tmpfs tmpfs /tmp
    mkdir /tmp/pg m/pg
    chown postgres: /tmp/pg m/pg
    : >pg.log
    chown postgres: pg.log
    ok as_postgres initdb -D "$T/m/pg" -A trust --no-sync
    server start
    ok as_postgres createdb -h /tmp/pg bank
    ok as_postgres pgbench -h /tmp/pg -i -q bank
fi
for round in $(seq "$kills"); do
    python3 "$work" work "$T/m" "$T/notes" &
    worker=$!
    if [ -n "${POSTGRES:-}" ]; then
        rm -f /tmp/pg/done*
        before=$(server rows)
        server bench &
        bench=$!
    fi
    for _ in $(seq 300); do [ ! -e notes.going ] || break; sleep 0.1; done
    ok rm notes.going
    sleep "${POSTGRES:-0}.$((RANDOM % 9))"
    kill -KILL $(hosts)
    wait "$worker" || differs "the worker of round $round"
    if [ -n "${POSTGRES:-}" ]; then
        server end
        wait "$bench"
        promised=$((before + $(cat /tmp/pg/done* | wc -l)))
    fi
    umount -l m
    ok zuse mount -o "allow_other${MOUNT_OPTIONS:+,$MOUNT_OPTIONS}" p m
    ok python3 "$work" check "$T/m" "$T/notes"
    if [ -n "${POSTGRES:-}" ]; then
        server start
        rows=$(server rows)
        [ "${rows:-0}" -ge "$promised" ] || differs "pgbench was promised $promised transactions, and $rows are there"
    fi
done
[ -z "${POSTGRES:-}" ] || server end
ok zpool export p
gone
says "p: sound" zuse check --in "$T/d" p
