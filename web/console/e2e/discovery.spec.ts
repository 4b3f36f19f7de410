// What a provider has is offered where its names would be typed, and shown on its page.
import { accessible, expect, login, picture, test } from './fixtures'

test.beforeAll(({ director }) => director.settle())

test('a provider shows what it has', async ({ page, director }) => {
  await login(page, director, '/documents/Provider/lab')
  const pools = page.getByRole('table', { name: 'Storage pools' })
  await expect(pools.getByRole('row').nth(1)).toContainText('default')
  await expect(pools.getByRole('row').nth(1)).toContainText(' of ')
  await expect(page.getByRole('table', { name: 'Hosts' })).toContainText('CPUs')
  await expect(page.getByLabel('The same with directorctl').last()).toHaveValue('directorctl provider discover lab')
  await accessible(page)
  await picture(page, 'discovery')
  await page.setViewportSize({ width: 320, height: 700 })
  await accessible(page)
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320)
  await picture(page, 'discovery-320')
})

test('the form of a document offers what the provider has, by keyboard alone', async ({ page, director }) => {
  await login(page, director, '/apply?template=Network')
  const text = page.getByRole('textbox', { name: 'New Network' })
  await expect(text).toContainText('provider: lab')
  await page.getByLabel('Mode').selectOption('bridge')
  const bridge = page.getByLabel('Bridge')
  await expect(bridge).toHaveJSProperty('tagName', 'SELECT')
  await bridge.focus()
  await page.keyboard.type('br0')
  await page.keyboard.press('Enter')
  await expect(text).toContainText('bridge: br0')
  await bridge.selectOption({ label: 'Type another name' })
  await expect(bridge).toHaveJSProperty('tagName', 'INPUT')
  await bridge.fill('br9')
  await expect(page.getByText('The provider shows no bridge of this name.')).toBeVisible()
  await expect(text).toContainText('bridge: br9')
  await accessible(page)
  await picture(page, 'discovery-form')
  await page.getByRole('button', { name: 'Choose from what was found' }).click()
  await expect(bridge).toHaveJSProperty('tagName', 'SELECT')
})

test('a provider that does not answer leaves the fields to be typed', async ({ page, director }) => {
  await page.route('**/api/v1/providers/lab/discovery', (route) =>
    route.fulfill({
      status: 503,
      contentType: 'application/problem+json',
      json: {
        status: 503,
        kind: 'unavailable',
        title: 'unavailable',
        detail: 'provider lab does not answer within 25s',
        hint: 'find out what is slow: directorctl provider test lab',
      },
    }),
  )
  await login(page, director, '/apply?template=Network')
  await page.getByLabel('Mode').selectOption('bridge')
  await expect(page.getByText('provider lab does not answer within 25s')).toBeVisible()
  await page.getByLabel('Bridge').fill('br0')
  await expect(page.getByRole('textbox', { name: 'New Network' })).toContainText('bridge: br0')
  await accessible(page)
})
