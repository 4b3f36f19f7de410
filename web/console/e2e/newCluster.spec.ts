// Flow 1: an empty director leads through provider, network, image and release to a cluster. Its plan is made in
// secondCluster.spec.ts.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { accessible, expect, login, picture, test as base, toStep, write } from './fixtures'
import { Director } from './director'

const test = base.extend<object, { director: Director }>({
  director: [
    async ({}, use) => {
      const director = new Director([])
      await director.start()
      await use(director)
      await director.stop()
    },
    { scope: 'worker' },
  ],
})

test.beforeAll(({ director }) => director.settle())

test('the first cluster of an empty director', async ({ page, director }) => {
  await login(page, director)
  await picture(page, 'empty')
  await accessible(page)
  await page.getByRole('link', { name: 'Set up the first cluster' }).click()
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('New cluster')
  const text = page.getByRole('textbox', { name: 'Documents' })
  await expect(text).toContainText('kind: Provider')

  await page.getByLabel('Name', { exact: true }).fill('rack')
  await expect(text).toContainText('provider: rack')
  await page.getByLabel('Address of libvirt').fill('qemu+ssh://')
  await expect(page.getByText('to fix').first()).toBeVisible()
  await expect(page.getByLabel('Address of libvirt')).toHaveAttribute('aria-invalid', 'true')
  await expect(page.locator('.cm-lint-marker-error').first()).toBeVisible()
  await picture(page, 'new-cluster-problem')
  await accessible(page)
  await page.getByLabel('Address of libvirt').fill('qemu:///system')
  await expect(page.locator('.cm-lint-marker-error')).toHaveCount(0)

  await toStep(page, /^Next: Network/)
  await page.getByLabel('Range').fill('10.90.0.0/24')
  await page.getByLabel('Gateway').fill('10.90.0.1')
  await page.getByLabel('First address for nodes').fill('10.90.0.10')
  await page.getByLabel('Last address for nodes').fill('10.90.0.90')
  await page.reload()
  await expect(page.getByText('This is the draft that you left here.')).toBeVisible()
  await expect(page.getByLabel('Range')).toHaveValue('10.90.0.0/24')

  await toStep(page, /^Next: Image/)
  await expect(page.getByRole('heading', { name: 'The image', exact: true })).toBeVisible()
  await picture(page, 'new-cluster-image')
  await accessible(page)
  await toStep(page, /^Next: Cluster/)
  await expect(page.getByRole('heading', { name: 'The cluster', exact: true })).toBeVisible()
  await page.getByLabel('Name', { exact: true }).fill('shop')
  await page.getByLabel('Workers', { exact: true }).fill('12')
  await expect(page.getByText('For 12 workers: 4 CPUs and 15 GB for each master.')).toBeVisible()
  await page.getByLabel('Workers', { exact: true }).fill('2')
  await page.getByRole('button', { name: 'Add a pool of workers' }).click()
  await expect(text).toContainText('name: pool2')
  await page.getByRole('button', { name: 'Leave this pool out' }).last().click()
  await expect(text).not.toContainText('name: pool2')
  await picture(page, 'new-cluster')
  await accessible(page)
  await toStep(page, /^Next: Look/)
  await expect(page.getByText('Cluster/shop').first()).toBeVisible()
  // The plan is told before anything is stored, and why it could not be made.
  await expect(page.getByRole('heading', { name: 'The plan for shop' })).toBeVisible()
  await expect(page.getByText('This plan could not be made, or not be started.')).toBeVisible()
  await picture(page, 'new-cluster-review')
  await accessible(page)
  await page.getByRole('button', { name: 'Store and plan' }).click()
  // The bundle is not on this machine. The documents are kept, and what is missing is said.
  await expect(page.getByText('The documents are stored.')).toBeVisible()
  const missing = page.getByText('this director has no imported release with the digest 000000000000')
  await expect(missing.last()).toBeVisible()
  await picture(page, 'new-cluster-no-bundle')
  await accessible(page)
  expect(director.ctl('get', 'clusters')).toContain('shop')
})

test('a provider that is not stored is asked what it has, and its pools and bridges are chosen', async ({
  page,
  director,
}) => {
  director.apply(there)
  await login(page, director, '/clusters/new?step=provider')
  await page.getByLabel('Describe a new one').check()
  await page.getByLabel('Name', { exact: true }).fill('rack2')
  const pool = page.getByLabel('Storage pool')
  await expect(pool).toHaveJSProperty('tagName', 'INPUT')
  await page.getByRole('button', { name: 'Look at what it has' }).click()
  await expect(page.getByText('The choices are what rack2 has')).toBeVisible()
  await expect(pool).toHaveJSProperty('tagName', 'SELECT')
  await expect(pool.locator('option', { hasText: 'free' })).toHaveCount(1)
  await accessible(page)
  await picture(page, 'new-cluster-discovery')
  await toStep(page, /^Next: Network/)
  await page.getByLabel('Describe a new one').check()
  await page.getByLabel('Mode').selectOption('bridge')
  await expect(page.getByLabel('Bridge')).toHaveJSProperty('tagName', 'SELECT') // it is not asked again
  await page.getByLabel('Bridge').selectOption('br0')
  await expect(page.getByRole('textbox', { name: 'Documents' })).toContainText('bridge: br0')
  expect(director.ctl('get', 'providers')).not.toContain('rack2')
})

test('a vCenter that is not stored is asked with its sealed credentials', async ({ page, director }) => {
  await login(page, director, '/apply?template=Provider')
  await write(page.getByRole('textbox', { name: 'New Provider' }), center)
  const look = page.getByRole('button', { name: 'Look at what it has' })
  await look.click()
  await expect(page.getByText('there are no credentials "vcenter"').first()).toBeVisible()
  const file = join(director.dir, 'vcenter.secret')
  writeFileSync(file, 'a secret of vCenter')
  director.ctl('provider', 'credentials', 'set', 'vcenter', '--user', 'kaas@vsphere.local', '--password-file', file)
  await page.getByRole('button', { name: 'Try again' }).first().click()
  await expect(page.getByText('The choices are what center has')).toBeVisible()
  expect(director.ctl('get', 'providers')).not.toContain('center')
})

const there = `apiVersion: kaas/v1
kind: Provider
metadata: {name: there}
spec: {type: sim, sim: {hosts: [{name: h1}]}}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: there}
spec:
  provider: there
  mode: bridge
  bridge: br0
  cidr: 10.95.0.0/24
  gateway: 10.95.0.1
  pool: {from: 10.95.0.10, to: 10.95.0.90}
`

const center = `apiVersion: kaas/v1
kind: Provider
metadata: {name: center}
spec:
  type: vsphere
  vsphere:
    url: https://vcenter.example.org/sdk
    credentials: vcenter
`
