#!/usr/bin/env bash
# Parents that a receive creates below an encrypted dataset are encrypted, and so is what is received into them.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk from
disk to
(umask 077 && echo "a long password" >key)
ok zpool create -m "$T/m" from "$T/from"
ok zpool create -m none to "$T/to"
ok zfs create -u -p from/a/b/c
ok zfs snapshot from/a/b/c@s
ok zfs create -u -o encryption=on -o keyformat=passphrase -o keylocation="file://$T/key" to/e
zfs send from/a/b/c@s >stream || differs "send"
ok zfs create -u -p from/new/d
ok zfs snapshot from/new/d@s
zfs send from/new/d@s >renamed || differs "send"
zfs receive -u -d to/e <stream || differs "receive -d"
is "$(zfs list -H -o name,encryption,encryptionroot -r to/e | tr '\t\n' ' ,')" \
    'to/e aes-256-gcm to/e,to/e/a aes-256-gcm to/e,to/e/a/b aes-256-gcm to/e,to/e/a/b/c aes-256-gcm to/e,' "what is encrypted"
# Without the key nothing can be created there.
ok zfs unload-key to/e
out=$(zfs receive -u -d to/e <renamed 2>&1) && differs "a receive without the key"
is "$(zfs list -H -o name -r to/e | wc -l)" 4 "nothing was created ($out)"
ok zpool destroy from
ok zpool destroy to
