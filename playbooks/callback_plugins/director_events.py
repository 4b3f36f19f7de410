# The events of a run, one JSON object per line, for the director.
#
# The lines go to the regular file that KAAS_EVENTS names: appending to it never
# waits for a reader, and a write that fails (a full disk) loses the line and not
# the play. Lines carry a number, so that a reader sees that some are missing.
# KAAS_LEASH=FD:SECONDS names a pipe from the director. When it is closed, the director
# is gone, and when nothing comes through it for that time (if it is not 0), another
# director may be at this work: the run ends itself, with all of its processes.
# Without KAAS_EVENTS the lines go to standard output, for a look by hand:
#
#     ANSIBLE_STDOUT_CALLBACK=director_events ansible-playbook ...
#
# What ansible-core censors (no_log) arrives here censored; this plugin never asks
# for module arguments, and sends no more of a result than its message, the ends
# of its output and its diff.
from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = '''
    name: director_events
    type: stdout
    short_description: events of a run as JSON lines
    description:
      - Writes what happens in a run as one JSON object per line to the file
        that the environment variable KAAS_EVENTS names.
    requirements:
      - set as stdout callback
'''

import json
import os
import re
import select
import signal
import threading
import time

from datetime import datetime, timezone

from ansible.module_utils._text import to_text
from ansible.plugins.callback import CallbackBase

# The reader drops SPARE bytes at the cut end of a text after it has looked for
# secrets, so that half a secret at the cut cannot slip through.
KEEP = 4096
SPARE = 2048
LINE = 65536
NAME = 300

_ESCAPES = re.compile(r'\x1b\[[0-9;?]*[A-Za-z]')
_CONTROLS = re.compile(r'[\x00-\x08\x0b-\x1f\x7f]')


def _clean(value):
    if isinstance(value, (list, tuple)):
        value = '\n'.join(to_text(v, errors='surrogate_or_replace', nonstring='simplerepr') for v in value)
    text = to_text(value, errors='surrogate_or_replace', nonstring='simplerepr')
    return _CONTROLS.sub('', _ESCAPES.sub('', text.replace('\r\n', '\n')))


def _short(value, limit=NAME):
    text = _clean(value).strip()
    return text if len(text) <= limit else text[:limit - 3] + '...'


PF_KTHREAD = 0x00200000  # include/linux/sched.h


def _read(pid, name):
    with open('/proc/%s/%s' % (pid, name), 'rb') as file:
        return file.read()


def _in_exec(pid):
    """Whether the process has no environment yet, which it gets late in an exec; until then it has no arguments."""
    if _read(pid, 'cmdline'):
        return False
    fields = _read(pid, 'stat').rpartition(b')')[2].split()
    return fields[0] not in (b'Z', b'X') and not int(fields[6]) & PF_KTHREAD


def _kill_marked(mark):
    """Kills every other process whose environment has the mark. Returns whether there may be another one."""
    found = False
    for name in os.listdir('/proc'):
        if name.isdigit() and int(name) != os.getpid():
            try:
                environment = _read(name, 'environ')
                if mark in environment.split(b'\0'):
                    os.kill(int(name), signal.SIGKILL)
                    found = True
                elif not environment and _in_exec(name):
                    found = True  # the next look knows
            except OSError:
                pass  # it has ended
    return found


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = 'stdout'
    CALLBACK_NAME = 'director_events'

    def __init__(self):
        super(CallbackModule, self).__init__()
        path = os.environ.get('KAAS_EVENTS')
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600) if path else 1
        self._owner = os.getpid()
        self._number = 0
        self._torn = False
        self._started = {}
        leash = os.environ.pop('KAAS_LEASH', '')
        if leash:
            fd, unused, silence = leash.partition(':')
            os.set_inheritable(int(fd), False)
            threading.Thread(target=self._watch, args=(int(fd), float(silence or 0) or None), daemon=True).start()

    # The leash.

    @staticmethod
    def _watch(fd, silence):
        while True:
            ready = select.select([fd], [], [], silence)[0]
            if not ready or not os.read(fd, 4096):
                break
        why = 'is gone' if ready else 'was silent for %g s' % silence
        try:
            os.write(2, ('The director %s: the run ends itself.\n' % why).encode())
        except OSError:
            pass  # nobody reads
        mark = ('KAAS_RUN=%s' % os.environ.get('KAAS_RUN', '')).encode()
        # One look misses what is forked during it.
        quiet, looks = 0, 0
        while quiet < 3 and looks < 100:
            quiet = 0 if _kill_marked(mark) else quiet + 1
            looks += 1
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

    # Writing.

    def _emit(self, kind, **fields):
        if os.getpid() != self._owner:
            return
        self._number += 1
        event = {'n': self._number, 'type': kind, 'time': datetime.now(timezone.utc).isoformat()}
        event.update((k, v) for k, v in fields.items() if v not in (None, '', [], {}))
        line = self._encode(event)
        for bulky in ('diff', 'stdout', 'stderr', 'msg'):
            if len(line) <= LINE:
                break
            if event.pop(bulky, None) is not None:
                event.setdefault('cut', []).append(bulky)
            line = self._encode(event)
        if self._torn:
            line = b'\n' + line
        try:
            done = 0
            while done < len(line):
                done += os.write(self._fd, line[done:])
            self._torn = False
        except OSError:
            # Part of the line may be in the file: the next one starts on its own.
            self._torn = True

    @staticmethod
    def _encode(event):
        text = json.dumps(event, ensure_ascii=False, separators=(',', ':'), default=_short)
        return text.encode('utf-8', 'replace') + b'\n'

    def _text(self, fields, name, value, tail=False):
        """Puts a bounded text into fields, and says so when it had to be cut."""
        if value is None or value == '':
            return
        data = _clean(value).strip('\n').encode('utf-8', 'replace')
        if len(data) > KEEP + SPARE:
            data = data[-KEEP - SPARE:] if tail else data[:KEEP + SPARE]
            fields.setdefault('cut', []).append(name)
        fields[name] = data.decode('utf-8', 'ignore')

    # What a task and a result are about.

    @staticmethod
    def _task(task):
        role = getattr(task, '_role', None)
        return {
            'task': _short(task.name or task.action),
            'role': _short(role.get_name()) if role else None,
            'path': task.get_path(),
            'task_id': task._uuid,
        }

    def _result(self, result, status, **more):
        task, data, host = result._task, result._result, result._host.get_name()
        began = self._started.pop((host, task._uuid), None)
        fields = self._task(task)
        fields.update(
            host=host,
            status=status,
            action=_short(task.action),
            seconds=round(time.monotonic() - began, 3) if began is not None else None,
        )
        fields.update(more)
        if not isinstance(data, dict):
            data = {'msg': data}
        if data.get('changed'):
            fields['changed'] = True
        delegated = data.get('_ansible_delegated_vars')
        if delegated:
            fields['delegated_to'] = _short(delegated.get('ansible_delegated_host') or task.delegate_to or '')
        if data.get('_ansible_no_log') or 'censored' in data:
            fields['msg'] = 'hidden (no_log)'
            self._emit('host', **fields)
            return
        message = data.get('msg')
        if status == 'skipped':
            message = message or data.get('skip_reason') or data.get('skipped_reason')
        if task.loop and isinstance(data.get('results'), list):
            fields['items'], said = self._items(data['results'])
            message = said or message
        self._text(fields, 'msg', message)
        self._text(fields, 'stdout', data.get('stdout') or data.get('module_stdout'), tail=True)
        self._text(fields, 'stderr', data.get('stderr') or data.get('module_stderr') or data.get('exception'),
                   tail=True)
        if status in ('failed', 'unreachable') or fields.get('changed'):
            command = data.get('cmd')
            if isinstance(command, (list, tuple)):
                command = ' '.join(_clean(c) for c in command)
            self._text(fields, 'command', command)
        if isinstance(data.get('rc'), int):
            fields['rc'] = data['rc']
        if isinstance(data.get('attempts'), int):
            fields['attempts'] = data['attempts']
        warnings = data.get('warnings')
        if warnings:
            fields['warnings'] = [_short(w) for w in warnings[:5]]
        self._emit('host', **fields)

    @staticmethod
    def _items(results):
        """Folds the items of a loop into counts, and says what failed first."""
        counts, said = {'ok': 0, 'changed': 0, 'skipped': 0, 'failed': 0}, []
        for item in results:
            if not isinstance(item, dict):
                continue
            if item.get('failed') or item.get('unreachable'):
                counts['failed'] += 1
                if len(said) < 3:
                    label = item.get('_ansible_item_label', item.get(item.get('ansible_loop_var', 'item')))
                    if item.get('_ansible_no_log') or 'censored' in item:
                        said.append('an item: hidden (no_log)')
                    else:
                        why = item.get('msg') or item.get('stderr') or item.get('module_stderr') or ''
                        if item.get('stderr') and item.get('stderr') != why:
                            why = '%s: %s' % (why, item['stderr'])
                        said.append('%s: %s' % (_short(label, 100), _clean(why)[-1500:]))
            elif item.get('skipped'):
                counts['skipped'] += 1
            elif item.get('changed'):
                counts['changed'] += 1
            else:
                counts['ok'] += 1
        return counts, '\n'.join(said)

    # What ansible-core tells.

    def v2_playbook_on_start(self, playbook):
        self._emit('playbook_start', playbook=_short(os.path.basename(playbook._file_name)))

    def v2_playbook_on_play_start(self, play):
        self._emit('play_start', play=_short(play.get_name()), check=bool(play.check_mode) or None)

    def v2_playbook_on_no_hosts_matched(self):
        self._emit('no_hosts', msg='the play matches no host')

    def v2_playbook_on_no_hosts_remaining(self):
        self._emit('no_hosts', msg='no host is left to continue with')

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._emit('task_start', action=_short(task.action), **self._task(task))

    def v2_playbook_on_handler_task_start(self, task):
        self._emit('task_start', action=_short(task.action), handler=True, **self._task(task))

    def v2_playbook_on_cleanup_task_start(self, task):
        self._emit('task_start', action=_short(task.action), **self._task(task))

    def v2_runner_on_start(self, host, task):
        self._started[(host.get_name(), task._uuid)] = time.monotonic()

    def v2_runner_on_ok(self, result):
        self._result(result, 'changed' if result._result.get('changed') else 'ok')

    def v2_runner_on_skipped(self, result):
        self._result(result, 'skipped')

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._result(result, 'failed', ignored=bool(ignore_errors) or None)

    def v2_runner_on_unreachable(self, result):
        ignored = getattr(result, '_task_fields', {}).get('ignore_unreachable')
        self._result(result, 'unreachable', ignored=bool(ignored) or None)

    def v2_runner_retry(self, result):
        data = result._result
        fields = self._task(result._task)
        fields.update(host=result._host.get_name(), attempts=data.get('attempts'), retries=data.get('retries'))
        if not (data.get('_ansible_no_log') or 'censored' in data):
            self._text(fields, 'msg', data.get('msg') or data.get('stderr') or data.get('stdout'))
        self._emit('retry', **fields)

    def v2_on_file_diff(self, result):
        data = result._result
        if data.get('_ansible_no_log') or 'censored' in data:
            return
        parts = [data]
        if result._task.loop and isinstance(data.get('results'), list):
            parts = [r for r in data['results'] if isinstance(r, dict)]
        text = ''
        for part in parts:
            if part.get('diff') and part.get('changed') and not part.get('_ansible_no_log'):
                text += self._get_diff(part['diff']) or ''
            if len(text) > 2 * KEEP:
                break
        if text:
            fields = self._task(result._task)
            fields['host'] = result._host.get_name()
            self._text(fields, 'diff', text)
            self._emit('diff', **fields)

    def v2_playbook_on_stats(self, stats):
        hosts = {}
        for host in sorted(stats.processed):
            counts = stats.summarize(host)
            counts['failed'] = counts.pop('failures', 0)
            hosts[host] = counts
        self._emit('stats', stats=hosts or None)
