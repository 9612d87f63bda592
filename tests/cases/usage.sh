#!/usr/bin/env bash
# Clients find out what a command can do by calling it with wrong arguments and parsing its usage message. Zuse's had none of OpenZFS's
# lines. A sub-command that does not exist was reported as a typing error.
. "$(dirname "$0")/lib.sh"

for line in 'zfs send|receive_resume_token' 'zfs receive|receive -A <filesystem|volume>' 'zfs recv -A|receive -A <filesystem|volume>' \
    'zfs destroy|<filesystem|volume>@<snap>[%<snap>][,...]' 'zfs get|keylocation' 'zfs set|receive_resume_token' \
    'zfs frobnicate|unrecognized command' 'zfs|missing command' 'zpool get|feature@...' 'zpool list -Q|invalid option' \
    'zpool create|create [-fnd]' 'zpool prefetch p|is not in Zuse yet' 'zfs share|is not in Zuse yet'; do
    command=${line%%|*}
    # shellcheck disable=SC2086
    fails 2 $command
    # shellcheck disable=SC2086
    says "${line#*|}" $command
    # shellcheck disable=SC2086
    is "$($command 2>/dev/null)" '' "what $command prints on its output"
done
silent 'Did you mean' zfs destry p
silent 'similar' zpool prefetch p
ok zfs send --help
