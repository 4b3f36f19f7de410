import { expect, test } from 'vitest'
import { KeptAnswers } from './kept'

const get = (path: string) => new Request(`https://director.test${path}`)
const json = (text: string, tag: string) =>
  new Response(text, { headers: { ETag: tag, 'Content-Type': 'application/json; charset=utf-8' } })
const unchanged = (tag: string) => new Response(null, { status: 304, headers: { ETag: tag } })

test('an answer that has not changed is the one that is here', async () => {
  const kept = new KeptAnswers()
  const first = get('/clusters')
  kept.ask(first)
  expect(first.headers.get('If-None-Match')).toBeNull()
  expect(await (await kept.answer(first, json('[1]', '"a"'))).text()).toBe('[1]')

  const again = get('/clusters')
  kept.ask(again)
  expect(again.headers.get('If-None-Match')).toBe('"a"')
  const answer = await kept.answer(again, unchanged('"a"'))
  expect([answer.status, await answer.text()]).toEqual([200, '[1]'])

  expect(await (await kept.answer(get('/clusters'), json('[2]', '"b"'))).text()).toBe('[2]')
  const last = get('/clusters')
  kept.ask(last)
  expect(last.headers.get('If-None-Match')).toBe('"b"')
})

test('only answers in JSON to a GET are kept', async () => {
  const kept = new KeptAnswers()
  const post = () => new Request('https://director.test/apply', { method: 'POST' })
  await kept.answer(post(), json('{}', '"a"'))
  await kept.answer(get('/text'), new Response('x', { headers: { ETag: '"a"', 'Content-Type': 'text/plain' } }))
  await kept.answer(get('/failed'), new Response('{}', { status: 500, headers: { ETag: '"a"' } }))
  for (const request of [post(), get('/text'), get('/failed')]) {
    kept.ask(request)
    expect(request.headers.get('If-None-Match')).toBeNull()
  }
})

test('the answers that were used last are kept', async () => {
  const kept = new KeptAnswers()
  for (let i = 0; i < 60; i++) {
    await kept.answer(get(`/nodes/${i}`), json('{}', `"${i}"`))
    await kept.answer(get('/nodes/0'), unchanged('"0"'))
  }
  const tag = (path: string) => {
    const request = get(path)
    kept.ask(request)
    return request.headers.get('If-None-Match')
  }
  expect([tag('/nodes/0'), tag('/nodes/1'), tag('/nodes/59')]).toEqual(['"0"', null, '"59"'])
})

test('an answer that never was here is an error', async () => {
  await expect(new KeptAnswers().answer(get('/clusters'), unchanged('"a"'))).rejects.toThrow('Load the page again')
})
