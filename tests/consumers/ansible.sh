#!/usr/bin/env bash
# Ansible's modules zfs, zfs_facts, zpool_facts and zfs_delegate_admin (collection community.general, from the PyPI package 'ansible').
# Each task runs twice; the second run must change nothing.
. "$(dirname "$0")/lib.sh"
venv ansible ansible-core==2.17.14
collections=$KEPT/ansible-10.7.0
if [ ! -e "$collections/.complete" ]; then
    rm -rf "$collections"
    mkdir -p "$collections"
    (cd "$T/.own" && pip download -q --no-deps ansible==10.7.0 &&
        python -m zipfile -l ansible-10.7.0-*.whl | awk '{ print $1 }' | grep '^ansible_collections/community/general/' |
        python -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2], sys.stdin.read().split())' \
            ansible-10.7.0-*.whl "$collections") >ansible.log 2>&1 ||
        cannot "cannot download the PyPI package 'ansible': $(tail -n 1 ansible.log)"
    touch "$collections/.complete"
fi
export ANSIBLE_REMOTE_TEMP=$T/.own/ansible-tmp
export ANSIBLE_COLLECTIONS_PATH=$collections ANSIBLE_HOME=$T/.own/ansible ANSIBLE_LOCALHOST_WARNING=0 ANSIBLE_NOCOLOR=1
export ANSIBLE_INVENTORY_UNPARSED_WARNING=0 ANSIBLE_DEPRECATION_WARNINGS=0

pools ztank
cat >play.yml <<'END'
- hosts: localhost
  connection: local
  gather_facts: false
  vars: { ansible_python_interpreter: "{{ ansible_playbook_python }}" }
  module_defaults: { group/none: {} }
  tasks:
    - community.general.zfs:
        { name: ztank/db, state: present, extra_zfs_properties: { compression: zstd, recordsize: 16K, "my:note": "two words" } }
    - community.general.zfs:
        { name: ztank/db/log, state: present, extra_zfs_properties: { quota: 100M, sync: disabled, mountpoint: "{{ dir }}/log" } }
    - community.general.zfs: { name: ztank/vol, state: present, extra_zfs_properties: { volsize: "16777216", volblocksize: "8192" } }
    - community.general.zfs: { name: ztank/db@one, state: present }
    - community.general.zfs: { name: ztank/clone, state: present, origin: ztank/db@one }
    - community.general.zfs: { name: ztank/gone, state: absent }
    - community.general.zfs_delegate_admin: { name: ztank/db, users: nobody, permissions: "snapshot,mount", state: present }
    - community.general.zfs_facts: { dataset: ztank, recurse: true, type: all }
    - community.general.zpool_facts: { name: ztank }
    - copy:
        dest: "{{ dir }}/facts.json"
        content: "{{ { 'zfs': ansible_zfs_datasets, 'pool': ansible_zfs_pools } | to_json }}"
END
sed -i '/module_defaults/d' play.yml
play() { ansible-playbook -i localhost, -e "dir=$T" "$1"; }
runs first play play.yml
says 'failed=0' cat first.out
is "$(grep -c '^changed' first.out)" 7 "tasks that changed something" # with the copy
is "$(zfs get -H -o value compression,recordsize,my:note ztank/db | tr '\n' ' ')" 'zstd 16K two words ' "properties"
is "$(zfs get -H -o value origin ztank/clone)" ztank/db@one "the clone's origin"
is "$(findmnt -n -o TARGET "$T/log")" "$T/log" "the mount with a mountpoint of its own"
is "$(zfs get -H -p -o value volsize,volblocksize ztank/vol | tr '\n' ' ')" '16777216 8192 ' "the volume"
runs second play play.yml
changing() { awk '/^TASK/ { task = $2 } /^changed:/ { print task }' "$1" | sort | uniq -c | awk '{ print $1, $2 }'; }
is "$(changing second.out | grep -v copy)" '' "tasks that changed something again"
is "$(python - <<'END'
import json
facts = json.load(open("facts.json"))
sets = {d["name"]: d for d in facts["zfs"]}
pool = facts["pool"][0]
print(*sorted(sets), sets["ztank/db/log"]["quota"], sets["ztank/vol"]["type"], pool["health"], pool["feature@encryption"])
END
)" 'ztank ztank/clone ztank/db ztank/db/log ztank/db@one ztank/vol 100M volume ONLINE enabled' "facts"

cat >end.yml <<'END'
- hosts: localhost
  connection: local
  gather_facts: false
  vars: { ansible_python_interpreter: "{{ ansible_playbook_python }}" }
  tasks:
    - community.general.zfs_delegate_admin: { name: ztank/db, users: nobody, permissions: "mount", state: absent }
    - community.general.zfs: { name: ztank/db/log, state: present, extra_zfs_properties: { quota: 50M } }
    - community.general.zfs: { name: ztank/clone, state: absent }
    - community.general.zfs: { name: ztank/db, state: absent }
    - community.general.zfs: { name: ztank/db, state: absent }
END
runs end play end.yml
is "$(grep -c '^changed' end.out)" 4 "tasks of the end that changed something"
is "$(zfs list -H -o name | tr '\n' ' ')" 'ztank ztank/vol ' "what is left"
ok zpool destroy ztank
ended ztank
