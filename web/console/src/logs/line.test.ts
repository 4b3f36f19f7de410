import { expect, test } from 'vitest'
import { lineOf, printed, visible } from './line'

// A line that is no JSON comes from the director as an object with its text.
const cases: [name: string, record: unknown, want: ReturnType<typeof lineOf>][] = [
  ['an empty line', { msg: '' }, undefined],
  ['no JSON', { msg: 'plain <b>text</b>' }, { at: '', text: 'plain <b>text</b>', tone: 'plain' }],
  ['an object without a text', { other: 1 }, { at: '', text: '{"other":1}', tone: 'plain' }],
  ['no object', null, undefined],
  [
    'an entry of the director',
    { level: 'INFO', msg: 'VM made', vm: 'n1', cpus: 2 },
    { at: '', text: 'VM made vm=n1 cpus=2', tone: 'plain' },
  ],
  ['an error of the director', { level: 'ERROR', msg: 'no' }, { at: '', text: 'error: no', tone: 'bad' }],
  ['a task', { type: 'task_start', role: 'r', task: 't' }, { at: '', text: 'task r: t', tone: 'head' }],
  [
    'a result',
    { type: 'host', host: 'h', status: 'changed', seconds: 1.25 },
    { at: '', text: '  h: changed in 1.3 s', tone: 'plain' },
  ],
  [
    'a failure',
    { type: 'host', host: 'h', status: 'failed', msg: 'm', stderr: 'a\nb\n' },
    { at: '', text: '  h: failed: m\n    stderr: a\n    b', tone: 'bad' },
  ],
  [
    'a failure that is ignored',
    { type: 'host', host: 'h', status: 'failed', ignored: true },
    { at: '', text: '  h: failed (ignored)', tone: 'plain' },
  ],
  ['statistics', { type: 'stats' }, undefined],
  ['an end', { type: 'run_end', status: 'ok' }, { at: '', text: 'run ended: ok', tone: 'head' }],
  [
    'a bad end',
    { type: 'run_end', status: 'unreachable', msg: 'm' },
    { at: '', text: 'run ended: unreachable: m', tone: 'bad' },
  ],
  ['a type of a later version', { type: 'new', host: 'h', msg: 'm' }, { at: '', text: 'new h m', tone: 'plain' }],
]

test.each(cases)('%s', (_, record, want) => expect(lineOf(record)).toEqual(want))

test('what colours a terminal, or turns the direction of text, does nothing here', () => {
  expect(visible('\u001b[31mred\u001b[0m \u001b]0;title\u0007x')).toBe('red x')
  expect(visible('a\u202egpj.exe\u2066b\u0000c\td\ne')).toBe('a\ufffdgpj.exe\ufffdb\ufffdc\td\ne')
})

test('what a terminal was sent is shown as lines', () => {
  expect(printed('\u001b[2J\u001b[1;1Hboot\r\n  10 %\r 100 %\r\nlogin: ')).toEqual(['boot', ' 100 %', 'login: '])
  expect(printed('<b>\u0007x\r')).toEqual(['<b>\ufffdx\ufffd'])
  expect(printed('')).toEqual([''])
})
