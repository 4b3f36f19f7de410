// What others write is shown as they wrote it, and what a browser refuses is not needed.
import { accessible, blockStorage, expect, login, test, toStep } from './fixtures'

test.beforeAll(({ director }) => director.settle())

const nasty = `<img src=x onerror=alert(1)> \\e[31mred\\e[0m \\u202Egnp.exe`

test('markup, escapes and right-to-left marks are text', async ({ page, director }) => {
  director.apply(
    `apiVersion: kaas/v1\nkind: Project\nmetadata: {name: nasty}\n` +
      `spec: {description: "<img src=x onerror=alert(1)> <b>bold</b>"}\n`,
  )
  await login(page, director, '/users/projects')
  const row = page.getByRole('row', { name: /nasty/ })
  await expect(row).toContainText('<img src=x onerror=alert(1)> <b>bold</b>')
  expect(await row.locator('img, b').count()).toBe(0)

  await page.goto(`/clusters?q=${encodeURIComponent('<img src=x onerror=alert(1)>\u202e')}`)
  await expect(page.getByText(/No cluster is like this/).or(page.getByRole('alert'))).toBeVisible()
  expect(await page.locator('main img').count()).toBe(0)
  await page.goto(`/clusters/${encodeURIComponent(nasty)}`)
  await expect(page.getByRole('alert')).toBeVisible()
  expect(await page.locator('main img').count()).toBe(0)
})

test('what a node prints is text: escapes, right-to-left marks, markup, and a line of 32 KiB', async ({
  page,
  director,
}) => {
  const small = director.ctl('get', 'cluster', 'small', '-o', 'yaml')
  director.apply(small.replace('name: small', 'name: nasty'))
  await login(page, director, '/clusters/nasty')
  await page.getByRole('button', { name: 'Plan', exact: true }).click()
  await page.getByRole('button', { name: 'Make the plan' }).click()
  await page.getByRole('button', { name: 'Start', exact: true }).click()
  const trouble = page.getByRole('link', { name: 'Open the step and its log' }).first()
  await expect(trouble).toBeVisible({ timeout: 180_000 })
  await trouble.click()
  const bad = page.locator('.log li.bad').first()
  await expect(bad).toContainText('red \ufffdgnp.exe <img src=x onerror=alert(1)> xxxx')
  const text = (await bad.textContent()) ?? ''
  expect(text).not.toMatch(/[\u001b\u202e]/)
  expect(text).toContain('x'.repeat(1000))
  expect(await page.locator('main img').count()).toBe(0)
  await accessible(page)
  await page.setViewportSize({ width: 320, height: 800 })
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320)
})

test('a browser that stores nothing can be used', async ({ page, director }) => {
  await blockStorage(page)
  await login(page, director, '/clusters/new')
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('New cluster')
  await page.getByLabel('Name', { exact: true }).fill('kept-here')
  await expect(page.getByText('This browser stores nothing.')).toBeVisible()
  await toStep(page, /^Next/)
  await toStep(page, 'Back')
  await expect(page.getByLabel('Name', { exact: true })).toHaveValue('kept-here')
  await page.getByRole('button', { name: /theme$/ }).click()
})

test('a clock that is wrong is told, and times are those of the director', async ({ page, director }) => {
  await page.addInitScript(() => {
    const Right = Date
    const behind = 26 * 3600_000
    globalThis.Date = class extends Right {
      constructor(...of: [] | [string | number | Date]) {
        if (of.length === 0) super(Right.now() - behind)
        else super(of[0])
      }
      static override now = () => Right.now() - behind
    } as DateConstructor
  })
  await login(page, director, '/clusters')
  await expect(page.getByText(/machine's clock is 1 d 2 h behind the director's/)).toBeVisible()
  const described = page.getByRole('row', { name: /small/ }).locator('time')
  await expect(described).toHaveText(/^(now|.* ago)$/)
  await accessible(page)
  await page.setViewportSize({ width: 320, height: 800 })
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320)
})

test('a director that was upgraded under an open page asks to load it again', async ({ page, director }) => {
  await login(page, director, '/clusters')
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Clusters')
  // Parts of the old console are gone from the new director.
  await page.route(/\/assets\/schedules-.*\.js$/, (route) => route.fulfill({ status: 404, body: '' }))
  await page.getByRole('link', { name: 'Schedules' }).click()
  await expect(page.getByText('This page was loaded from another version of the director.')).toBeVisible()
  await page.unroute(/\/assets\/schedules-.*\.js$/)
  await page.getByRole('button', { name: 'Load the page again' }).click()
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Schedules')
})
