import type { Page } from '@playwright/test'
import { accessible, clusterOf, expect, login, picture, test, toStep, write } from './fixtures'

interface Session {
  id: string
  kind: string
}

test.beforeAll(({ director }) => director.settle())

test('a session that ends inside the editor loses nothing', async ({ page, director }) => {
  await login(page, director, '/apply?template=Project')
  const editor = page.getByRole('textbox', { name: 'New Project' })
  await write(editor, 'apiVersion: kaas/v1\nkind: Project\nmetadata: {name: kept}\nspec: {description: not lost}\n')
  await expect(page.getByText('Project/kept')).toBeVisible()
  await page.context().clearCookies()
  await page.getByRole('button', { name: 'Apply' }).click()
  await expect(page.getByText('Your session has ended')).toBeVisible()
  await picture(page, 'session-ended')
  await page.getByRole('dialog').getByLabel('Password').fill(director.password)
  await page.getByRole('dialog').getByRole('button', { name: 'Log in' }).click()
  await expect(page.getByText('Your session has ended')).toHaveCount(0)
  await expect(editor).toContainText('not lost')
  await page.getByRole('button', { name: 'Apply' }).click()
  await expect(page.getByText('Stored.')).toBeVisible()
})

test('a session that ends inside the wizard of a new cluster loses no field', async ({ page, director }) => {
  await login(page, director, '/clusters/new')
  const name = page.getByLabel('Name', { exact: true })
  await name.fill('kept')
  await expect(page.getByRole('textbox', { name: 'Documents' })).toContainText('name: kept')
  await page.context().clearCookies()
  await name.fill('kept-too')
  const again = page.getByRole('dialog')
  await expect(again).toContainText('Your session has ended')
  await again.getByLabel('Password').fill(director.password)
  await again.getByRole('button', { name: 'Log in' }).click()
  await expect(again).toHaveCount(0)
  await expect(name).toHaveValue('kept-too')
  await toStep(page, /^Next/)
  await toStep(page, 'Back')
  await expect(name).toHaveValue('kept-too')
  await expect(page.getByRole('textbox', { name: 'Documents' })).toContainText('name: kept-too')
})

test('a session that is ended elsewhere is told without a click', async ({ page, director }) => {
  await login(page, director, '/clusters')
  await expect(page.getByText('live', { exact: true })).toBeVisible()
  const sessions = JSON.parse(director.ctl('users', 'sessions', '-o', 'json')) as { items: Session[] } | Session[]
  const all = Array.isArray(sessions) ? sessions : sessions.items
  for (const s of all.filter((s) => s.kind === 'browser')) director.ctl('users', 'end-session', s.id)
  await expect(page.getByText('Your session has ended')).toBeVisible({ timeout: 120_000 })
  await page.getByRole('dialog').getByLabel('Password').fill(director.password)
  await page.getByRole('dialog').getByRole('button', { name: 'Log in' }).click()
  await expect(page.getByText('live', { exact: true })).toBeVisible({ timeout: 120_000 })
})

test('a draft survives a reload', async ({ page, director }) => {
  await login(page, director, '/apply?template=Network')
  await write(page.getByRole('textbox', { name: 'New Network' }), '# half a thought\n')
  await page.reload()
  await expect(page.getByText('This is the draft that you left here.')).toBeVisible()
  await expect(page.getByRole('textbox', { name: 'New Network' })).toContainText('half a thought')
  await page.getByRole('button', { name: 'Start again' }).click()
  await expect(page.getByRole('textbox', { name: 'New Network' })).toContainText('kind: Network')
})

test('two people at one document see both versions', async ({ page, director, context }) => {
  await login(page, director, '/apply?kind=Network&name=net1')
  const mine = page.getByRole('textbox', { name: 'Edit net1' })
  await expect(mine).toContainText('10.64.0.1')
  const other = await context.newPage()
  await other.goto('/apply?kind=Network&name=net1')
  const theirs = other.getByRole('textbox', { name: 'Edit net1' })
  await expect(theirs).toContainText('10.64.0.1')
  await replace(theirs, '10.64.250.0', '10.64.200.0')
  await other.getByRole('button', { name: 'Apply' }).click()
  await expect(other.getByText('Stored.')).toBeVisible()

  await replace(mine, '10.64.250.0', '10.64.240.0')
  await page.getByRole('button', { name: 'Apply' }).click()
  const both = page.getByRole('table', { name: 'Your text, and What is stored now' })
  await expect(both.getByRole('row', { name: /10\.64\.240\.0.*10\.64\.200\.0/ })).toBeVisible()
  await expect(page.getByText('admin has stored it')).toBeVisible()
  await expect(mine).toContainText('10.64.240.0')
  await both.scrollIntoViewIfNeeded()
  await picture(page, 'two-people')
  await accessible(page)
  await page.getByRole('button', { name: 'Keep mine' }).click()
  await page.getByRole('button', { name: 'Apply' }).click()
  await expect(page.getByText('Stored.')).toBeVisible()
})

test('a draft of an older version does not overwrite a newer one unseen', async ({ page, director }) => {
  director.apply('apiVersion: kaas/v1\nkind: Project\nmetadata: {name: drafted}\nspec: {description: first}\n')
  await login(page, director, '/apply?kind=Project&name=drafted')
  const editor = page.getByRole('textbox', { name: 'Edit drafted' })
  await replace(editor, 'first', 'mine')
  await expect(page.getByLabel('Difference')).toContainText('mine') // the editor has taken the text
  director.apply('apiVersion: kaas/v1\nkind: Project\nmetadata: {name: drafted}\nspec: {description: theirs}\n')
  await page.reload()
  await expect(page.getByText('This is the draft that you left here.')).toBeVisible()
  await page.getByRole('button', { name: 'Apply' }).click()
  await expect(page.getByRole('table', { name: /What is stored now/ })).toContainText('theirs')
  await expect(editor).toContainText('mine')
  await page.getByRole('button', { name: 'Go on with the stored text' }).click()
  await expect(editor).toContainText('theirs')
})

async function replace(editor: import('@playwright/test').Locator, from: string, to: string): Promise<void> {
  await expect(editor).toContainText(from)
  const lines = await editor.locator('.cm-line').allInnerTexts()
  await write(editor, lines.map((l) => l.replace(from, to).replace(/\n$/, '')).join('\n'))
}

test('a director that is killed under an open page is taken up again, and no event is lost or doubled', async ({
  page,
  director,
}) => {
  // A cluster of its own: what other tests have planned for theirs does not matter.
  director.apply(clusterOf('watched'))
  await login(page, director, '/plans?cluster=watched')
  await expect(page.getByText('live', { exact: true })).toBeVisible()
  await expect(page.getByText('No plan is like this.')).toBeVisible()
  const heard = await eventsOf(page)
  director.apply(clusterOf('watched', { labels: 'seen: before' }))
  await expect.poll(heard).not.toEqual([])
  await director.kill()
  await expect(page.getByText(/^as of/)).toBeVisible()
  await expect(page.getByText('No plan is like this.')).toBeVisible()
  await director.start()
  // Much happens before the page is there again.
  for (const n of [1, 2, 3]) director.apply(clusterOf('watched', { labels: `seen: again-${n}` }))
  await expect(page.getByText('live', { exact: true })).toBeVisible({ timeout: 5_000 })
  director.ctl('plan', 'watched')
  await expect(page.getByRole('table', { name: 'Plans' }).locator('[data-status=planned]')).toBeVisible()

  const [first = 0] = await heard()
  const answer = await page.request.get(`/api/v1/events?after=${first - 1}`)
  const told = ((await answer.json()) as { items: { id: number }[] }).items.map((e) => e.id)
  expect(told.length).toBeGreaterThan(4)
  await expect.poll(heard).toEqual(told) // none is lost, and none came twice
})

// eventsOf returns a function that returns the ids of all events that have come to the page since.
async function eventsOf(page: Page): Promise<() => Promise<number[]>> {
  await page.evaluate(() => {
    const ids: number[] = []
    ;(window as unknown as { heard: number[] }).heard = ids
    new BroadcastChannel('director-events').onmessage = (e: MessageEvent<{ event?: { id: number } }>) => {
      if (e.data.event) ids.push(e.data.event.id)
    }
  })
  return () => page.evaluate(() => (window as unknown as { heard: number[] }).heard)
}

test('many tabs share one stream, and none hangs', async ({ context, director }) => {
  const first = await context.newPage()
  await login(first, director, '/clusters')
  await expect(first.getByText('live', { exact: true })).toBeVisible()
  let streams = 0
  context.on('request', (r) => {
    if (r.url().includes('/events') && r.frame().page() !== first) streams++ // the first may connect again
  })
  for (let i = 0; i < 19; i++) {
    const tab = await context.newPage()
    await tab.goto('/plans')
    await expect(tab.getByText('live', { exact: true })).toBeVisible()
  }
  expect(streams).toBe(0)
})
