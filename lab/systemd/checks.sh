#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# The checks, in the guest: one line 'test NAME ... ok' or '... FAILED' each, as libtest prints them.
#
# shellcheck disable=SC2317,SC2329 # the checks are called by name
set -u
exec 2>&1
readonly slice=user-1000.slice
readonly folder=/sys/fs/cgroup/user.slice/$slice
readonly drop_in=/run/systemd/system.control/$slice.d/50-MemoryMax.conf
readonly record=/var/lib/plimsoll/last-defence.json
readonly mib=1048576

# Runs a command until it succeeds, at most a minute or two: everything is emulated here.
until_so() {
    local try
    for try in $(seq 250); do
        "$@" && return 0
        sleep 0.2
    done
    echo "waited in vain ($try times): $*"
    return 1
}

check() {
    local said began=$SECONDS
    if said=$("$1"); then
        echo "test systemd::$1 ... ok"
    else
        printf '%s\n' "$said"
        echo "test systemd::$1 ... FAILED"
    fi
    echo "lab: $1 took $((SECONDS - began)) s"
}

is() { [ "$1" = "$2" ] || { echo "'$1' and not '$2'" && return 1; }; }
answers() { plimsoll status >/dev/null 2>&1; }
start() { systemctl start plimsoll && until_so answers; }
property() { systemctl show -p MemoryMax --value $slice; }
in_force() { cat $folder/memory.max; }
max_is() { [ "$(property)" = "$1" ] && { [ "$(in_force)" = "$1" ] || [ "$1 $(in_force)" = "infinity max" ]; }; }
said() { plimsoll status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["triggers"]["last-defence"])'; }
heard() { plimsoll status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["guards"]["others"]["kernel"])'; }
hears() { case $(heard) in "on: "*"own report") ;; *) return 1 ;; esac; }
# A word of Python about the last incident, which it finds in `it`.
of_last() {
    plimsoll history --json | python3 -c 'import json, sys; it = json.load(sys.stdin)[-1]; print(eval(sys.argv[1]))' "$1"
}
last_incident() { of_last "it['$1']"; }
incidents_of() {
    plimsoll history --json |
        python3 -c 'import json, sys; print(sum(any(v["pid"] == '"$1"' for v in i["victims"]) for i in json.load(sys.stdin)))'
}
told() { plimsoll history --json | grep -c last-defence-memory-max; }
# Without the unit's own restart.
kill_it() {
    mkdir -p /run/systemd/system/plimsoll.service.d
    printf '[Service]\nRestart=no\n' >/run/systemd/system/plimsoll.service.d/restart.conf
    systemctl daemon-reload
    systemctl kill --signal=KILL plimsoll
    until_so gone plimsoll
}
has_incident() { plimsoll history --json | grep -q "\"$1\""; }
# In the user's slice, as the user: a name, then what take.py takes.
take() {
    local name=$1
    shift
    systemd-run --quiet --collect --slice=$slice --uid=alice --unit="$name" -p OOMPolicy=continue /lab/take.py "$@"
}
gone() { ! systemctl is-active --quiet "$1"; }
end() { systemctl stop "$@" 2>/dev/null; }
# 150 MiB and the least headroom, 256 MiB.
readonly expected=$((406 * mib))

the_package_guards_as_soon_as_it_is_installed() {
    [ "$installed" = 0 ] || { cat /run/installed && return 1; }
    # Nobody has asked for it, and the unit counts as started once it guards: nothing is waited for.
    answers || { systemctl status plimsoll && return 1; }
    is "$(systemctl is-enabled plimsoll)" enabled || return 1
    systemctl disable --quiet plimsoll && systemctl preset --quiet plimsoll || return 1
    is "$(systemctl is-enabled plimsoll)" enabled || return 1
    is "$(plimsoll run --tmalloc -- /bin/echo granted)" granted
}

the_unit_starts_and_is_out_of_the_oom_killers_reach() {
    start || return 1
    is "$(systemctl is-active plimsoll)" active || return 1
    is "$(cat "/proc/$(systemctl show -p MainPID --value plimsoll)/oom_score_adj")" -1000 || return 1
    case $(said) in idle:*) ;; *) said && return 1 ;; esac
    # With all that the unit takes away, the kernel's log can be read.
    until_so hears || { heard && return 1; }
}

a_line_sets_memory_max_above_it() {
    plimsoll limit set alice 150M && until_so max_is $expected || return 1
    case $(said) in "memory.max + oom_score_adj: 1 user slice has one"*) ;; *) said && return 1 ;; esac
}

a_line_that_moves_takes_it_along() {
    plimsoll limit set alice 300M && until_so max_is $((556 * mib)) || return 1
    plimsoll limit set alice 150M && until_so max_is $expected
}

# With CAP_SYS_RESOURCE, as the unit has it, a write that raises would move oom_score_adj_min too.
a_process_that_was_raised_can_still_lower_itself() {
    local heard
    heard=$(systemd-run --quiet --wait --pipe --slice=$slice --uid=alice /lab/take.py 130 0 200) || return 1
    printf '%s\n' "$heard"
    [[ $heard == *"own 100" ]]
}

# She sits at a terminal that takes messages, and crosses her line from elsewhere.
whoever_lost_a_process_is_told_in_their_terminal() {
    local shown=/run/terminal
    { answers || start; } && until_so systemctl is-active --quiet plimsoll-notify || return 1
    plimsoll limit set alice 150M || return 1
    install -o alice /dev/null $shown
    systemd-run --quiet --collect --uid=alice --unit=terminal script --quiet --flush --command 'mesg y; sleep 600' $shown
    until_so pgrep --uid alice --full --exact 'sleep 600' >/dev/null || return 1
    take hog 250
    is_told() { grep -q 'A process of yours was killed' "$shown" && grep -q "plimsoll why" "$shown"; }
    until_so is_told || { systemctl status plimsoll-notify && cat $shown && return 1; }
    end terminal
}

# The scripts of docs/login-node.md, where their second lines say that they belong, as the page has them.
put_scripts() {
    python3 - <<'END'
import pathlib, re
for text in re.findall(r"^```sh no-run: [^\n]*\n(#!/bin/sh\n.*?)^```$", open("/lab/login-node.md").read(), re.M | re.S):
    path = pathlib.Path(text.split("\n")[1].removeprefix("# "))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
END
}
pam_line() { grep '^session optional pam_exec.so' /lab/login-node.md; }
hard_of() { plimsoll limit show "$1" --json | jq '.[0].hard_bytes'; }

# By sshd, with a key, and by su: each draws the line of its service, and shows where she stands.
a_login_draws_the_line_and_shows_it() {
    local status=0 session=/etc/pam.d/common-session
    answers || start || return 1
    cp $session /run/common-session
    put_scripts && pam_line >>$session
    logs_in || { status=1 && cat $session /usr/local/sbin/plimsoll-login /run/screen && journalctl --unit=ssh --no-pager; }
    cp /run/common-session $session
    rm /usr/local/sbin/plimsoll-login
    end ssh
    plimsoll limit clear alice
    return $status
}
logs_in() {
    local all quarter tenth home
    all=$(awk '/^MemTotal:/ { print $2 * 1024 }' /proc/meminfo)
    quarter=$((all / 4 / 4096 * 4096)) tenth=$((all / 10 / 4096 * 4096))
    home=$(getent passwd alice | cut -d : -f 6)
    plimsoll limit clear alice >/dev/null 2>&1
    ssh-keygen -q -t ed25519 -N '' -f /run/key
    install -D -o alice -m 600 /run/key.pub "$home/.ssh/authorized_keys" && chown alice "$home/.ssh" || return 1
    mkdir -p /run/sshd
    systemctl start ssh || return 1
    ssh -tt -i /run/key -o StrictHostKeyChecking=no -o BatchMode=yes alice@127.0.0.1 <<<exit >/run/screen 2>&1 || return 1
    grep -q 'Memory of alice: .* of ' /run/screen || return 1
    is "$(hard_of alice)" $quarter || return 1
    su --login alice <<<exit >/run/screen 2>&1 || return 1
    grep -q 'Memory of alice: .* of ' /run/screen || return 1
    is "$(hard_of alice)" $tenth || return 1
    # Nobody's login fails for want of a daemon.
    systemctl stop plimsoll
    su --login alice <<<exit >/run/screen 2>&1
    is $? 0 && start
}

# A cgroup as Slurm makes it for a job, and a stand-in for Slurm's own command.
an_epilog_writes_why_into_the_jobs_output() {
    local status=0
    answers || start && put_scripts && plimsoll limit set alice 150M || return 1
    printf '#!/bin/sh\n[ "$*" = "show job 7" ] && echo "   StdOut=/home/alice/slurm-7.out"\n' >/usr/local/bin/scontrol
    chmod 755 /usr/local/bin/scontrol
    epilog_tells || { status=1 && plimsoll history && cat /home/alice/slurm-7.out; }
    rm /usr/local/bin/scontrol /etc/slurm/epilog.d/plimsoll
    return $status
}
epilog_tells() {
    local job=/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0 pid before
    before=$(plimsoll history --json | jq 'map(.id) | max // 0')
    mkdir -p $job
    sh -c "echo \$\$ >$job/cgroup.procs; exec setpriv --reuid=alice --regid=alice --clear-groups /lab/take.py 250" &
    pid=$!
    wait $pid
    told_of_it() { [ "$(incidents_of "$pid")" = 1 ]; }
    until_so told_of_it || return 1
    # Another job's, and somebody else's, get nothing.
    SLURM_JOB_ID=7 SLURM_JOB_UID=0 SLURM_JOB_USER=alice /etc/slurm/epilog.d/plimsoll || return 1
    ! grep -qs plimsoll /home/alice/slurm-7.out || return 1
    SLURM_JOB_ID=7 SLURM_JOB_UID=1000 SLURM_JOB_USER=alice /etc/slurm/epilog.d/plimsoll || return 1
    is "$(stat -c %U /home/alice/slurm-7.out)" alice || return 1
    grep -q "Process $pid " /home/alice/slurm-7.out && is "$(grep -c '^plimsoll: a process' /home/alice/slurm-7.out)" 1 || return 1
    [ "$before" -lt "$(plimsoll history --json | jq 'map(.id) | max')" ]
}

# Shared memory is in no line: neither the programs nor the daemon have anything to do.
at_memory_max_the_kernel_takes_the_raised_process_and_history_tells() {
    local pid
    take small 12
    take large 120 600
    pid=$(systemctl show -p MainPID --value large)
    until_so gone large && until_so has_incident last-defence-memory-max || return 1
    is "$(last_incident trigger)" last-defence || return 1
    [[ $(last_incident victims) == *"'pid': $pid,"* ]] || { last_incident victims && return 1; }
    # What the kernel tells of it is in the same incident, and in no other.
    [[ $(last_incident origin) == *"'scope': 'cgroup'"* ]] || { last_incident origin && return 1; }
    is "$(incidents_of "$pid")" 1 || return 1
    is "$(systemctl is-active small)" active || return 1
    end small
}

with_the_other_triggers_switched_off_the_kernel_takes_the_largest() {
    local pid
    mkdir -p /etc/plimsoll/conf.d
    printf '[limits]\ntriggers = ["last-defence"]\n' >/etc/plimsoll/conf.d/alone.toml
    systemctl restart plimsoll && until_so answers && until_so max_is $expected || return 1
    take small 12
    take large 700
    pid=$(systemctl show -p MainPID --value large)
    until_so gone large || return 1
    told_of_it() { plimsoll history --json | grep -q "\"pid\": $pid,"; }
    until_so told_of_it || return 1
    is "$(last_incident trigger)" last-defence || return 1
    is "$(systemctl is-active small)" active || return 1
    end small
    rm /etc/plimsoll/conf.d/alone.toml
    systemctl restart plimsoll && until_so answers
}

# A login of hers by su's PAM session, to a shell that leads a terminal; what is written to descriptor 9 is typed there.
hers() { pgrep --uid alice --exact 'systemd|bash|dbus-daemon'; }
runs_in() { grep -qx "0::/user.slice/$slice/$2" "/proc/$1/cgroup" || { cat "/proc/$1/cgroup" && return 1; }; }
three_run() { [ "$(pgrep --uid alice --full --count 'take.py 5$')" -eq 3 ]; }

# A quarter of the line is 14 MiB. The shell has 13.5, the others 9 each: the hog crosses it with some 11, and has 12.5 at most.
what_a_session_stands_on_is_left_though_the_hog_is_smaller() {
    local status=0
    mkfifo /run/keys
    exec 9<>/run/keys
    su --pty --login alice <&9 >/run/screen 2>&1 9>&- &
    session_stays || { status=1 && ps -u alice -o pid,rss,sid,tty,args && cat /run/screen && plimsoll history; }
    pkill --uid alice --full take.py
    echo exit >&9
    wait $!
    return $status
}
session_stays() {
    local manager shell bus
    answers || start && plimsoll limit set alice 56M --soft=4M || return 1
    echo 'systemctl --user start dbus; printf -v held "%*s" 13600000; for i in 1 2 3; do /lab/take.py 5 & done' >&9
    until_so three_run || return 1
    # In the order in which they began.
    read -rd '' manager shell bus < <(hers)
    runs_in "$manager" user@1000.service/init.scope && runs_in "$bus" 'user@1000.service/.*\.slice/dbus.service' || return 1
    runs_in "$shell" 'session-[^/]*\.scope' || return 1
    take hog 9
    until_so gone hog || return 1
    # The shell was larger, and nobody else.
    until_so was_larger "$shell" || { last_incident peers && return 1; }
    # All others are there: it was the hog.
    is "$(hers | xargs)" "$manager $shell $bus" && three_run
}
was_larger() {
    local larger='[(v["pid"], "session" in v) for v in it["peers"] if v["usage_bytes"] > it["victims"][0]["usage_bytes"]]'
    [ "$(of_last "$larger")" = "[($1, True)]" ]
}

a_line_that_goes_puts_it_back_and_leaves_no_drop_in() {
    plimsoll limit clear alice && until_so max_is infinity && [ ! -e $drop_in ]
}

a_daemon_that_was_killed_leaves_it_and_the_next_takes_it_over() {
    plimsoll limit set alice 150M && until_so max_is $expected || return 1
    local killed
    killed=$(systemctl show -p MainPID --value plimsoll)
    kill -9 "$killed"
    restarted() { [ "$(systemctl show -p MainPID --value plimsoll)" != "$killed" ] && answers; }
    until_so restarted && max_is $expected && [ -e $record ]
}

a_clean_stop_puts_it_back_and_leaves_no_trace() {
    systemctl stop plimsoll && max_is infinity && [ ! -e $drop_in ] && [ ! -e $record ]
}

# The other two triggers are gone: the daemon is dead and the programs are removed.
with_the_daemon_dead_and_the_programs_gone_the_line_still_ends_a_hog() {
    start && until_so max_is $expected || return 1
    local before
    before=$(told)
    kill_it
    rm -r /sys/fs/bpf/plimsoll
    max_is $expected || return 1
    take small 12
    take large 700
    until_so gone large || return 1
    grep -qx 'oom_kill [1-9][0-9]*' $folder/memory.events || return 1
    is "$(systemctl is-active small)" active || return 1
    end small
    start || return 1
    told_more() { [ "$(told)" -gt "$before" ]; }
    until_so told_more
}

stop_guarding_puts_back_what_a_killed_daemon_left() {
    max_is $expected || return 1
    kill_it
    max_is $expected || return 1
    plimsoll daemon --stop-guarding && max_is infinity && [ ! -e $record ]
}

what_an_administrator_changed_since_is_left() {
    start && until_so max_is $expected || return 1
    systemctl set-property --runtime $slice MemoryMax=700M && until_so max_is $((700 * mib)) || return 1
    systemctl stop plimsoll && max_is $((700 * mib))
}

an_administrators_lower_limit_is_never_raised() {
    systemctl set-property --runtime $slice MemoryMax=200M && until_so max_is $((200 * mib)) || return 1
    start || return 1
    case $(said) in *"no slice of a user with a line has one now"*) ;; *) said && return 1 ;; esac
    max_is $((200 * mib)) && systemctl stop plimsoll && max_is $((200 * mib))
}

# A program that goes by libsystemd, and 1,200 connections of others: all of them live on in the service manager.
listeners() { plimsoll status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["pressure_socket"]["clients"])'; }
listeners_are() { [ "$(listeners)" = "$1" ]; }
words() { sed -n 's/^told //p' /run/listener | tail -n 1; }
heard_more_than() { [ "$(words)" -gt "$1" ] 2>/dev/null; }
kept_are() { [ "$(systemctl show -p NFileDescriptorStore --value plimsoll)" -ge "$1" ]; }
ticks() { awk '{ print $14 + $15 }' "/proc/$(systemctl show -p MainPID --value listener)/stat"; }
programs_by_libsystemd_are_told_and_sleep_through_restart_and_crash() {
    local status=0
    { answers || start; } && plimsoll limit set alice 300M --soft=100M || return 1
    systemd-run --quiet --collect --slice=$slice --uid=alice --unit=listener -p StandardOutput=file:/run/listener \
        -p Environment='MEMORY_PRESSURE_WATCH=/run/plimsoll/pressure.sock MEMORY_PRESSURE_WRITE=c29tZSAyMDAwMDAgMjAwMDAwMAA=' \
        /lab/listen || return 1
    systemd-run --quiet --collect --unit=others -p StandardOutput=file:/run/others /lab/crowd.py 5 240 || return 1
    sleeps_on || { status=1 && cat /run/listener /run/others && systemctl status plimsoll && plimsoll status; }
    end listener others
    plimsoll limit clear alice
    return $status
}
sleeps_on() {
    local before killed spent
    until_so grep -qx 'open 1200' /run/others && until_so listeners_are 1201 || return 1
    take first 150
    until_so heard_more_than 0 && end first || return 1
    until_so kept_are 1201 || return 1
    before=$(words) spent=$(ticks)
    systemctl restart plimsoll && until_so listeners_are 1201 || return 1
    killed=$(main_pid)
    kill -9 "$killed"
    until_so is_another "$killed" && until_so listeners_are 1201 || return 1
    # Nobody was told of anything, nobody spins, and nobody has ended.
    is "$(words)" "$before" && is "$(cat /run/others)" 'open 1200' || return 1
    [ $(($(ticks) - spent)) -lt 50 ] || { echo "$(($(ticks) - spent)) ticks" && return 1; }
    take second 150
    until_so heard_more_than "$before" && end second
}

# From here on the machine counts as short of memory as soon as less than two thirds of it are left: a hog of 600 MiB does.
result() { systemctl show -p Result --value "$1"; }
result_is() { [ "$(result "$1")" = "$2" ]; }
has_result() { ! result_is "$1" success; }
hog() {
    local name=$1
    shift
    systemctl reset-failed "$name" 2>/dev/null
    # Nobody's line is in the way.
    systemd-run --quiet --uid=nobody --unit="$name" "$@"
}
guarded() {
    # As the check before left it.
    [ ! -e /etc/plimsoll/conf.d/machine.toml ] || ! answers || return 0
    mkdir -p /etc/plimsoll/conf.d
    printf '[machine]\nterm_memory = 66\nkill_memory = 66\nnotice = false\nreclaim = false\n' >/etc/plimsoll/conf.d/machine.toml
    systemctl restart plimsoll && until_so answers
}

# What there is to know of a unit that did not end as it should.
tell() {
    echo "result of $1: $(result "$1")"
    journalctl --unit="$1" --unit=plimsoll --lines=20 --output=short-monotonic --no-pager
    plimsoll history
}
said_late() { journalctl --unit=plimsoll --since="@$2" --output=cat --no-pager | grep -q "hear too late .*/$1.service"; }

# Emulated on a busy machine the mark may come too late, which is no fault as long as that is said.
a_main_process_that_the_machine_guard_kills_makes_the_units_result_oom_kill() {
    guarded || return 1
    local try began
    for try in 1 2 3; do
        began=$(date +%s)
        hog main-process /lab/take.py 600
        until_so has_result main-process || { tell main-process && return 1; }
        ! result_is main-process oom-kill || break
        said_late main-process "$began" || { tell main-process && return 1; }
    done
    result_is main-process oom-kill || { echo "late $try times" && tell main-process && return 1; }
    has_incident machine-low-memory-kill || { tell main-process && return 1; }
    journalctl --unit=main-process --output=cat --no-pager | grep -q 'killed 1 process(es) in this unit' ||
        { tell main-process && return 1; }
}

a_unit_that_goes_whole_has_that_result_too() {
    guarded || return 1
    # As a shell that forks two: OOMPolicy=kill sets memory.oom.group.
    hog whole-unit -p OOMPolicy=kill /bin/sh -c '/lab/take.py 8 & /lab/take.py 600 & wait'
    until_so result_is whole-unit oom-kill || { tell whole-unit && return 1; }
    until_so has_ended whole-unit
}
has_ended() { ! grep -qs 'populated 1' "/sys/fs/cgroup/system.slice/$1.service/cgroup.events"; }

a_workers_end_is_not_blamed_on_its_unit() {
    guarded || return 1
    hog worker -p OOMPolicy=stop /bin/sh -c '/lab/take.py 600; exec sleep 400'
    killed_worker() { [ "$(systemctl show -p StatusErrno --value worker)" = 0 ] && ! pgrep -f 'take.py 600' >/dev/null; }
    until_so killed_worker || return 1
    is "$(systemctl is-active worker)" active || return 1
    systemctl stop worker
    result_is worker success || { result worker && return 1; }
}

# The real earlyoom and systemd-oomd, each started and ended by its own check.
unit_of() { echo "/run/systemd/system/$1"; }
others() { plimsoll status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["guards"]["others"]["programs"])'; }
follows() { case $(others) in "on: the journal of $1 is followed") ;; *) return 1 ;; esac; }
# A word of Python about the incidents of one killer, which it finds in `them`.
of_killer() {
    plimsoll history --json | python3 -c '
import json, sys
them = [i for i in json.load(sys.stdin) if (i.get("origin") or {}).get("killer") == sys.argv[1]]
print(eval(sys.argv[2]))' "$1" "$2"
}
of_killer_is() { is "$(of_killer "$1" "$2")" "$3"; }
has_more() { [ "$(of_killer "$1" 'len(them)')" -gt "$2" ]; }
follower() { pgrep --parent "$(systemctl show -p MainPID --value plimsoll)" --exact journalctl; }
followers() { pgrep --exact journalctl; }
# With what is enabled or runs now.
again() { rm -f /etc/plimsoll/conf.d/machine.toml && systemctl restart plimsoll && until_so answers; }
with_earlyoom() {
    mkdir -p "$(unit_of earlyoom.service.d)"
    printf '[Service]\nExecStart=\nExecStart=/usr/bin/earlyoom -r 0 -m %s\n' "$1" >"$(unit_of earlyoom.service.d)/lab.conf"
    systemctl daemon-reload
    # Only running, not enabled.
    systemctl start earlyoom && again && until_so follows earlyoom.service
}
without_earlyoom() {
    end earlyoom
    rm -r "$(unit_of earlyoom.service.d)"
    systemctl daemon-reload
}
# Below this slice a unit is taken that has waited for memory for 1 % of two seconds, if pages are looked through for it:
# without swap there are none.
readonly zram=/sys/block/zram0
with_oomd() {
    echo 128M >$zram/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0 || return 1
    mkdir -p /run/systemd/oomd.conf.d
    printf '[OOM]\nDefaultMemoryPressureDurationSec=2s\n' >/run/systemd/oomd.conf.d/50-lab.conf
    printf '[Slice]\nManagedOOMMemoryPressure=kill\nManagedOOMMemoryPressureLimit=1%%\n' >"$(unit_of pressed.slice)"
    systemctl daemon-reload
    systemctl enable --quiet --now systemd-oomd && again && until_so follows systemd-oomd.service
}
without_oomd() {
    systemctl disable --quiet systemd-oomd
    swapoff /dev/zram0
    echo 1 >$zram/reset
    end pressed.slice systemd-oomd.service systemd-oomd.socket
    rm -r /run/systemd/oomd.conf.d "$(unit_of pressed.slice)"
    systemctl daemon-reload
}

what_earlyoom_kills_is_in_the_history_with_whom() {
    local status=0
    { with_earlyoom 66,1 && earlyoom_kills; } || { status=1 && tell taken && others; }
    without_earlyoom && return $status
}
earlyoom_kills() {
    local pid before
    before=$(of_killer earlyoom 'len(them)')
    hog taken /lab/take.py 600
    pid=$(systemctl show -p MainPID --value taken)
    until_so has_more earlyoom "$before" || return 1
    of_killer_is earlyoom '[(v["pid"], v["uid"], v["comm"]) for v in them[-1]["victims"]]' "[($pid, 65534, 'take.py')]" || return 1
    of_killer_is earlyoom '(them[-1]["guard"], them[-1]["trigger"], them[-1]["action"])' "('kernel', 'kernel', 'term')" || return 1
    of_killer_is earlyoom '200 < them[-1]["victims"][0]["usage_bytes"] >> 20 < 700' True || return 1
    is "$(incidents_of "$pid")" 1 || return 1
    local told
    told=$(plimsoll why last)
    printf '%s\n' "$told"
    [[ $told == *earlyoom* && $told == *take.py* ]]
}

what_systemd_oomd_kills_is_in_the_history_with_its_cgroup() {
    local status=0
    { with_oomd && oomd_kills; } || { status=1 && tell taken && others && oomctl; }
    without_oomd && return $status
}
oomd_kills() {
    local before
    before=$(of_killer systemd-oomd 'len(them)')
    hog taken --slice=pressed.slice -p MemoryHigh=32M /lab/take.py 300
    until_so has_more systemd-oomd "$before" || return 1
    of_killer_is systemd-oomd 'them[-1]["origin"]["cgroup"]' /pressed.slice/taken.service || return 1
    of_killer_is systemd-oomd '(them[-1]["victims"], them[-1]["action"], them[-1]["trigger"])' "([], 'kill', 'kernel')" || return 1
    until_so result_is taken oom-kill || return 1
    of_killer_is systemd-oomd 'len(them)' $((before + 1)) || return 1
    local told
    told=$(plimsoll why last)
    printf '%s\n' "$told"
    [[ $told == *systemd-oomd* && $told == */pressed.slice/taken.service* ]]
}

the_child_that_reads_the_journal_may_do_little_and_ends_with_the_daemon() {
    local status=0
    { with_earlyoom 2,1 && bound_child; } || { status=1 && others && ps -ef; }
    rm -f "$(unit_of plimsoll.service.d)/lab.conf"
    without_earlyoom && start && return $status
}
bound_child() {
    until_so follower >/dev/null || return 1
    local pid command
    pid=$(follower)
    is "$(cat "/proc/$pid/oom_score_adj")" 0 || return 1
    is "$(ps -o ni= -p "$pid" | tr -d ' ')" 0 || return 1
    # CAP_DAC_READ_SEARCH is 1 << 2.
    is "$(grep -E '^(CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs)' "/proc/$pid/status" | cut -f 2 | xargs)" \
        "0000000000000000 0000000000000004 0000000000000004 0000000000000000 1" || return 1
    # What was written since the daemon's start is shown to a child that starts only now.
    systemctl restart earlyoom
    mapfile -d "" -t command </proc/"$pid"/cmdline
    until_so shows_earlyoom || { echo "${command[*]}" && return 1; }
    # systemd would end what is left of the unit: it is not to have to.
    mkdir -p "$(unit_of plimsoll.service.d)"
    printf '[Service]\nKillMode=process\nRestart=no\n' >"$(unit_of plimsoll.service.d)/lab.conf"
    systemctl daemon-reload
    systemctl stop plimsoll && until_so no_follower || return 1
    start && until_so follower >/dev/null || return 1
    systemctl kill --kill-who=main --signal=KILL plimsoll
    until_so gone plimsoll && until_so no_follower
}
shows_earlyoom() { timeout 5 "${command[@]}" | grep -q 'sending SIGTERM when mem'; }
no_follower() { ! followers >/dev/null; }

# What systemd has of the daemon: its own word, and what came of the last reload.
main_pid() { systemctl show -p MainPID --value plimsoll; }
status_text() { systemctl show -p StatusText --value plimsoll; }
says() { [[ $(status_text) == *"$1"* ]]; }
is_another() { [ "$(main_pid)" != "$1" ] && [ "$(main_pid)" != 0 ] && answers; }
program() { stat -c %i /sys/fs/bpf/plimsoll/links/on_rss_stat; }
line_of() { plimsoll limit show alice --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["hard_bytes"])'; }
amend() {
    mkdir -p /run/systemd/system/plimsoll.service.d
    printf '[Service]\n%s\n' "$1" >/run/systemd/system/plimsoll.service.d/lab.conf
    systemctl daemon-reload
}
unamend() { rm -f /run/systemd/system/plimsoll.service.d/*.conf && systemctl daemon-reload; }
version() { dpkg-query --show --showformat='${Version}' plimsoll; }

systemctl_status_tells_what_came_of_a_reload() {
    answers || start || return 1
    mkdir -p /etc/plimsoll/conf.d
    echo 'nonsense = 1' >/etc/plimsoll/conf.d/bad.toml
    systemctl reload plimsoll
    until_so says 'stays as it was' || { status_text && return 1; }
    is "$(systemctl is-active plimsoll)" active || return 1
    rm /etc/plimsoll/conf.d/bad.toml
    systemctl reload plimsoll
    is_read() { ! says 'stays as it was'; }
    until_so is_read && is "$(systemctl is-active plimsoll)" active
}

a_guard_that_is_stuck_is_replaced_and_the_line_is_in_force_all_the_while() {
    local stuck before
    amend WatchdogSec=15s
    systemctl restart plimsoll && plimsoll limit set alice 150M || return 1
    stuck=$(main_pid) before=$(program)
    kill -STOP "$stuck"
    until_so is_another "$stuck" || { systemctl status plimsoll && return 1; }
    is "$(systemctl show -p NRestarts --value plimsoll)" 1 || return 1
    is "$(program)" "$before" && is "$(line_of)" $((150 * mib))
    local status=$?
    unamend
    return $status
}

# The new daemon is held up until somebody has crossed the line with none alive.
an_upgrade_keeps_the_line_and_kills_with_no_daemon_between() {
    local status=0
    answers || start || return 1
    plimsoll limit set alice 150M && until_so max_is $expected || return 1
    amend "ExecStartPre=/bin/sh -c 'until [ -e /run/go-on ]; do sleep 0.2; done'"
    upgrade || { status=1 && cat /run/upgraded && systemctl status plimsoll && plimsoll history; }
    touch /run/go-on
    unamend
    return $status
}
no_daemon() { ! pgrep --exact plimsoll >/dev/null; }
upgrade() {
    local before pid inode oom
    before=$(main_pid) inode=$(program) oom=$(grep -x 'oom_kill .*' $folder/memory.events)
    [[ $(version) == *plimsoll1 ]] || { version && return 1; }
    dpkg --install /lab/second/*.deb >/run/upgraded 2>&1 &
    until_so no_daemon || return 1
    plimsoll status >/dev/null 2>&1
    is $? 3 || return 1
    take hog 300
    pid=$(systemctl show -p MainPID --value hog)
    until_so gone hog && no_daemon || return 1
    # By a signal, and not of memory.max.
    is "$(grep -x 'oom_kill .*' $folder/memory.events)" "$oom" || return 1
    touch /run/go-on
    wait $! || return 1
    # Started means that it guards, and dpkg waits for that.
    answers || return 1
    [[ $(version) == *plimsoll2 ]] || { version && return 1; }
    [ "$(main_pid)" != "$before" ] || { echo "it was not replaced" && return 1; }
    is "$(program)" "$inode" && is "$(line_of)" $((150 * mib)) || return 1
    wrote() { [ "$(incidents_of "$pid")" = 1 ]; }
    until_so wrote || return 1
    is "$(last_incident trigger) $(last_incident action)" "in-kernel kill"
}

# Whatever a unit could take away and this one does not, packaging/README.md has by its name, with the reason.
each_exposure_that_systemd_sees_is_justified() {
    local told
    told=$(systemd-analyze security plimsoll.service --no-pager | tail -n 1)
    echo "lab: $told" >/dev/ttyS1
    systemd-analyze security plimsoll.service --json=short | python3 -c '
import json, sys
said = open("/lab/packaging.md").read().replace("\\|", "|").split(chr(96))
left = [one["name"] for one in json.load(sys.stdin) if float(one["exposure"] or 0) > 0 and one["name"] not in said]
print("not justified:", left)
sys.exit(bool(left))'
}

what_kills_for_the_same_shortage_is_told_and_the_command_settles_it() {
    local status=0
    { with_earlyoom 2,1 && settle earlyoom.service; } || { status=1 && plimsoll status; }
    systemctl --quiet unmask earlyoom.service
    without_earlyoom
    { with_oomd && settle systemd-oomd.service && asks_for_oomd; } || { status=1 && plimsoll status; }
    systemctl --quiet unmask systemd-oomd.service
    without_oomd && return $status
}
# Such a unit would start it, were it only disabled.
asks_for_oomd() {
    systemd-run --quiet --wait --slice=pressed.slice -p ManagedOOMSwap=kill /bin/true && gone systemd-oomd.service
}
settle() {
    local told command
    told=$(plimsoll status | grep 'the same shortage') || return 1
    command=${told##*To leave it to Plimsoll: }
    is "$command" "systemctl mask --now $1" || return 1
    $command 2>&1 && gone "$1" || return 1
    systemctl restart plimsoll || return 1
    ! plimsoll status | grep 'the same shortage'
}

# The daemon is dead, and what it left is in force.
removing_the_package_ends_all_guarding_though_no_daemon_lives() {
    answers || start || return 1
    plimsoll limit set alice 150M && until_so max_is $expected || return 1
    kill_it
    unamend
    [ -e /sys/fs/bpf/plimsoll/links ] || return 1
    dpkg --remove plimsoll 2>&1 || return 1
    [ ! -e /sys/fs/bpf/plimsoll ] && max_is infinity && [ ! -e /usr/bin/plimsoll ] || return 1
    # Settings and history stay, for whoever installs it again.
    ls /etc/plimsoll/plimsoll.toml /var/lib/plimsoll/limits.json || return 1
    dpkg --install /lab/second/*.deb 2>&1 && answers && is "$(line_of)" $((150 * mib))
}

purging_the_package_leaves_nothing() {
    answers || start || return 1
    echo '# by hand' >/etc/plimsoll/conf.d/own.toml
    dpkg --purge plimsoll 2>&1 || return 1
    local left
    left=$(find / -xdev \( -path /lab -o -path /proc -o -path /var/log -o -path /var/lib/dpkg \) -prune -o -name '*plimsoll*' ! -name 'plimsoll-lab*' -print)
    left+=$(find /sys/fs/bpf /run -name '*plimsoll*' ! -name '*plimsoll-lab*' ! -path '/run/systemd/*' -print)
    is "$left" "" && max_is infinity
}

dpkg --install /lab/first/*.deb >/run/installed 2>&1
readonly installed=$?
echo "kernel $(uname -r), $(systemctl --version | head -n 1)"
echo "lab: systemd was up after $(cut -d. -f1 /proc/uptime) s"
loginctl enable-linger alice
until_so [ -e $folder/memory.max ]
mapfile -t names < <(sed -n 's/^\([a-z]*_[a-z_]*_[a-z_]*\)() {$/\1/p' "$0")
mapfile -t patterns < <(grep . /lab/patterns)
for name in "${names[@]}"; do
    for pattern in "${patterns[@]:-*}"; do
        # shellcheck disable=SC2053 # a pattern it is
        if [[ $name == $pattern ]]; then check "$name" && break; fi
    done
done
journalctl --unit=plimsoll --output=cat --no-pager | sed 's/^/journal: /'
echo 'plimsoll-lab: end'
