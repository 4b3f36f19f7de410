// What a Consul has, what differs, and what is wrong with the way to it.
import { accessible, expect, login, picture, test } from './fixtures'

const consul = `
apiVersion: kaas/v1
kind: Consul
metadata: {name: dc1}
spec: {addresses: ["https://127.0.0.1:1"], datacenter: dc1, credentials: consul-token}
`

test.beforeAll(({ director }) => director.settle())

test('a Consul that does not answer says why, and what would be registered there', async ({ page, director }) => {
  await login(page, director, '/consul')
  await expect(page.getByText('There is no Consul yet.')).toBeVisible()
  director.apply(consul)
  await page.reload()
  const card = page.getByRole('region', { name: 'Consul dc1' })
  await expect(card.getByRole('table', { name: 'Services of dc1' })).toContainText('kaas-director')
  await expect(card.getByRole('table', { name: 'Services of dc1' })).toContainText('missing')
  await card.getByRole('button', { name: 'Test dc1' }).click()
  await expect(card.getByText('Something is wrong.')).toBeVisible()
  await expect(card).toContainText('there are no credentials "consul-token"')
  await card.getByRole('button', { name: 'Compare now' }).click()
  await expect(card).toContainText('this director simulates: it registers nothing')
  await accessible(page)
  await picture(page, 'consul')
})

test('services with their health, missing routes, and removals that wait for a person', async ({ page, director }) => {
  director.apply(consul)
  const entry = { node: 'kaas-u1', tags: ['master'], writer: 'director', cluster: 'small', port: 6443 }
  await page.route('**/api/v1/consuls/dc1/services', (route) =>
    route.fulfill({
      json: {
        items: [
          { ...entry, id: 'a', service: 'kaas-api-small', address: '10.0.0.1', passing: true },
          { ...entry, id: 'b', service: 'kaas-api-small', address: '10.0.0.2', passing: false, output: 'no answer' },
          { ...entry, id: 'c', service: 'web', address: '10.0.0.3', passing: true, writer: 'cluster' },
          { ...entry, id: 'd', service: 'old', address: '10.0.0.4', passing: true, drift: 'surplus' },
        ],
      },
    }),
  )
  await page.route('**/api/v1/consuls/dc1/gaps', (route) =>
    route.fulfill({
      json: {
        items: [
          {
            cluster: 'small',
            nodes: ['small-master-1'],
            network: 'db',
            cidr: '10.3.0.0/24',
            services: ['postgres'],
            problem: 'Network/db has the mode nat: nothing outside of it leads there',
            hint: 'put the nodes on Network/db, too',
          },
          {
            cluster: 'small',
            from: 'office',
            nodes: ['billing-1'],
            network: 'db',
            cidr: '10.3.0.0/24',
            services: ['kaas-api-small'],
            problem: 'Network/db has the mode nat: nothing outside of it leads there',
            hint: 'have the cluster on a network of another mode',
          },
        ],
      },
    }),
  )
  await page.route('**/api/v1/consuls', (route) =>
    route.fulfill({
      json: {
        items: [
          {
            name: 'dc1',
            datacenter: 'dc1',
            domain: 'consul',
            addresses: ['https://127.0.0.1:1'],
            state: {
              wanted: 4,
              written: 0,
              removed: 0,
              failing: 1,
              problem: '12 of 40 entries would be removed at once, so none is',
              hint: 'look at them',
              held: { id: 'abc', count: 12, total: 40, sample: ['kaas-u9/kaas-api-vip'] },
            },
          },
        ],
      },
    }),
  )
  let confirmed = ''
  await page.route('**/api/v1/consuls/dc1/sync', async (route) => {
    confirmed = (route.request().postDataJSON() as { confirm?: string }).confirm ?? ''
    await route.fulfill({ json: { wanted: 4, written: 0, removed: 12, failing: 1 } })
  })
  await login(page, director, '/consul')
  const services = page.getByRole('table', { name: 'Services of dc1' })
  await expect(services.getByRole('row').nth(2)).toContainText('failing')
  await expect(services.getByRole('row').nth(2)).toContainText('no answer')
  await expect(services.getByRole('row').nth(3)).toContainText('the cluster')
  await expect(services.getByRole('row').nth(4)).toContainText('surplus')
  const routes = page.getByRole('table', { name: 'Routes that are missing for dc1' })
  await expect(routes).toContainText('mode nat')
  await expect(routes.getByRole('row').nth(2)).toContainText('hosts on office')
  await expect(routes.getByRole('row').nth(2)).toContainText('of cluster small')
  await accessible(page)
  await picture(page, 'consul-services')
  await page.getByRole('button', { name: 'Remove 12 entries' }).click()
  await expect(page.getByRole('dialog')).toContainText('kaas-u9/kaas-api-vip')
  await accessible(page)
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click()
  await expect.poll(() => confirmed).toBe('abc')
  await page.setViewportSize({ width: 320, height: 700 })
  await accessible(page)
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320)
})
