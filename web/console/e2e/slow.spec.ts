// A hypervisor that needs more than a minute for an answer, which is longer than the director waits for other requests.
import { accessible, expect, login, picture, test } from './fixtures'

const slow = `apiVersion: kaas/v1
kind: Provider
metadata: {name: slow}
spec:
  type: sim
  sim:
    hosts: [{name: s1, cpus: 4, memory: 8GiB, disk: 100GiB}]
    verbs: [{verb: capacity, latency: 65s}, {verb: discover, latency: 65s}]
`

test.beforeAll(({ director }) => director.settle())

test('a provider that answers after a minute is waited for, and holds up nothing else', async ({ page, director }) => {
  director.apply(slow)
  const asked: string[] = []
  page.on('request', (r) => {
    if (/\/slow\/(test|discovery)$/.test(r.url())) asked.push(r.url().replace(/.*\//, ''))
  })
  await login(page, director, '/documents/Provider/slow')
  await expect(page.getByText('Asking the hypervisor.')).toBeVisible()

  const infrastructure = page.getByRole('link', { name: 'Infrastructure', exact: true })
  await infrastructure.click()
  const card = page.locator('section.pf-v6-c-card').filter({ has: page.getByRole('heading', { name: 'slow' }) })
  await expect(page.getByRole('table', { name: 'Hosts of lab' })).toBeVisible()
  await card.getByRole('button', { name: 'Test slow' }).click()
  await expect(card.getByText('Asking slow, which may take minutes.')).toBeVisible()
  await expect(card.getByText('The answer takes longer than usual.')).toBeVisible()
  await picture(page, 'slow-provider')
  await accessible(page)

  await page.getByRole('link', { name: 'Clusters', exact: true }).click()
  await page.getByLabel('Name, project').fill('small')
  await expect(page.getByRole('table', { name: 'Clusters' }).getByRole('row')).toHaveCount(2)

  await infrastructure.click()
  await expect(card.getByText('Asking slow, which may take minutes.')).toBeVisible()
  await expect(card.getByText('provider slow does not answer within 25s')).toBeVisible()
  await expect(card.getByText('Everything was found.')).toBeVisible({ timeout: 180_000 })
  await card.getByRole('link', { name: 'slow', exact: true }).click()
  await expect(page.getByText('provider slow does not answer within 25s')).toBeVisible()
  await accessible(page)
  expect(asked).toEqual(['discovery', 'test'])
})
