// Flow 5, whole: filter a fleet by version, choose the target, see each cluster's path and refusals, agree wave by
// wave; a failure stops the wave, and leads to the line of its log.
import { join } from 'node:path'
import type { Page } from '@playwright/test'
import { Director } from './director'
import { accessible, clusterOf, expect, login, picture, tabTo, test as base } from './fixtures'

const models = join(import.meta.dirname, 'models')

const test = base.extend<object, { director: Director }>({
  director: [
    async ({}, use) => {
      const director = new Director([models, join(models, 'next')])
      await director.start()
      await use(director)
      await director.stop()
    },
    { scope: 'worker' },
  ],
})

// The upgrade of a worker fails in clusters called weak. Those called old are two versions behind.
const fleets = [
  ['mouse', ['shop-1', 'shop-2', 'weak-1', 'shop-3', 'old-1']],
  ['keys', ['bank-1', 'weak-2', 'bank-2']],
] as const

test.beforeAll(({ director }) => {
  director.settle()
  const before = (text: string) => text.replaceAll('k8s-1.37', 'k8s-1.36')
  for (const [fleet, names] of fleets) {
    const documents = names.map((name) => {
      const text = clusterOf(name, { labels: `fleet: ${fleet}` })
      return name.startsWith('old') ? before(text) : text
    })
    director.apply(documents.join(''))
    for (const name of names) {
      const made = JSON.parse(director.ctl('plan', name, '-o', 'json')) as { id: string }
      director.ctl('start', made.id, '--wait', '--yes')
      director.ctl('node', 'list', name) // a look at the cluster is kept, and with it its version
    }
  }
})

const row = (page: Page, table: string, name: string) =>
  page.getByRole('table', { name: table, exact: true }).getByRole('row', { name: new RegExp(name) })

test('the upgrade of a fleet, by mouse: a failure stops the wave', async ({ page, director }) => {
  await login(page, director, '/clusters?label=fleet%3Dmouse')
  await page.getByLabel('Version').fill('v1.37')
  await expect(page.getByLabel('Counts')).toContainText('4 clusters')
  await page.getByLabel('Version').fill('')
  await expect(page.getByLabel('Counts')).toContainText('5 clusters')
  await page.getByRole('link', { name: 'Change these clusters' }).click()
  await expect(page.getByLabel('Labels')).toHaveValue('fleet=mouse')
  await page.getByLabel('What it is for').fill('to 1.38')
  await page.getByLabel('Release', { exact: true }).selectOption('k8s-1.38')
  await page.getByLabel('Image', { exact: true }).selectOption('debian12-k8s-1.38')
  await page.getByLabel('Clusters of the first wave').fill('1')
  await page.getByLabel('Clusters of the other waves').fill('2')
  await expect(page.getByRole('status').filter({ hasText: '5 clusters' })).toBeVisible()
  await page.getByRole('button', { name: 'See what these 5 clusters would get' }).click()
  await expect(row(page, 'Clusters of the campaign', 'old-1')).toContainText(
    'Its path: v1.37.1 (Release/k8s-1.37), v1.38.0',
  )
  await expect(row(page, 'Clusters of the campaign', 'shop-1')).toContainText('v1.38.0')
  await picture(page, 'upgrade-new')
  await accessible(page)
  await page.getByLabel('Runs Kubernetes').fill('v1.37')
  await page.getByLabel('Names').fill('shop-1 weak-1 shop-2 shop-3')
  await page.getByLabel('Plans at the same time').fill('1')
  await expect(page.getByText('4 clusters in 3 waves: 1, then 2, then 1')).toBeVisible()
  await page.getByRole('button', { name: 'Make the campaign' }).click()

  await agree(page, 1)
  await expect(row(page, 'Clusters', 'shop-1')).toContainText('done')
  await agree(page, 2)
  await expect(row(page, 'Clusters', 'weak-1')).toContainText('failed')
  await expect(page.getByRole('button', { name: 'Resume' })).toBeVisible() // one failure is more than none
  await expect(row(page, 'Clusters', 'shop-2')).toContainText('agreed') // and would have been the next
  await expect(row(page, 'Clusters', 'shop-3')).toContainText('planned')
  await picture(page, 'upgrade-stopped')
  await accessible(page)
  const campaign = page.url()
  expect(await running(page, 'shop-2')).toBe('v1.37.1')

  await row(page, 'Clusters', 'weak-1').getByRole('link', { name: 'its plan' }).click()
  await page.getByText('Open the step and its log').first().click()
  await expect(page.locator('.log li.bad').first()).toContainText('no space left on device')
  await page.goto(campaign)
  await page.getByRole('button', { name: 'Skip weak-1' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByRole('textbox', { name: 'Why it is left out' }).fill('its disk is full')
  await dialog.getByRole('button', { name: 'Skip' }).click()
  await page.getByRole('button', { name: 'Resume' }).click()
  await dialog.getByRole('button', { name: 'Resume' }).click()
  await expect(row(page, 'Clusters', 'shop-2')).toContainText('done')
  await agree(page, 3)
  await expect(row(page, 'Clusters', 'shop-3')).toContainText('done')
  await expect(page.locator('main [data-status=done]').first()).toBeVisible()
  expect(await running(page, 'shop-3')).toBe('v1.38.0')
})

async function agree(page: Page, wave: number): Promise<void> {
  await page.getByRole('button', { name: `Agree to wave ${wave}` }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Agree' }).click()
}

// running is the version that a cluster runs.
async function running(page: Page, cluster: string): Promise<string> {
  const answer = await page.request.get(`/api/v1/clusters/${cluster}`)
  return ((await answer.json()) as { version: string }).version
}

test('the upgrade of a fleet, by keyboard alone', async ({ page, director }) => {
  const press = async (name: string) => {
    await tabTo(page, name)
    await page.keyboard.press('Enter')
  }
  const type = async (label: string, text: string) => {
    await tabTo(page, label)
    await page.keyboard.type(text)
  }
  // in presses a button of the dialog that is open: until it has the focus, Tab begins at the page's button.
  const dialog = page.getByRole('dialog')
  const within = async (name: string) => {
    await expect(dialog.locator(':focus')).toHaveCount(1)
    await press(name)
    await expect(dialog).toBeHidden()
  }
  const agreeTo = async (wave: number) => {
    const button = `Agree to wave ${wave}`
    await expect(page.getByRole('button', { name: button })).toBeVisible() // once the wave is planned
    await press(button)
    await within('Agree')
  }
  const cluster = (name: string) => row(page, 'Clusters', name)
  await login(page, director, '/clusters')
  await type('Label, such as env=prod', 'fleet=keys')
  await type('Version, such as v1.37', 'v1.37')
  await expect(page.getByLabel('Counts')).toContainText('3 clusters')
  await press('Change these clusters')
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('New campaign')
  await expect(page.getByLabel('Runs Kubernetes')).toHaveValue('v1.37')
  await type('What it is for', 'to 1.38, by keys')
  await expect(page.getByLabel('Release', { exact: true }).locator('option', { hasText: 'k8s-1.38' })).toHaveCount(1)
  await type('Release', 'k8s-1.38')
  await type('Image', 'debian12-k8s-1.38')
  await type('Names', 'bank-1 weak-2 bank-2')
  await type('Clusters of the other waves', '1')
  await expect(page.getByText('3 clusters in 3 waves: 3 of 1')).toBeVisible()
  await press('See what these 3 clusters would get')
  await expect(row(page, 'Clusters of the campaign', 'bank-2')).toContainText('v1.38.0')
  await press('Make the campaign')
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('to 1.38, by keys')

  await agreeTo(1)
  await expect(cluster('bank-1')).toContainText('done')
  await agreeTo(2)
  await expect(cluster('weak-2')).toContainText('failed')
  await expect(cluster('bank-2')).toContainText('planned')
  await expect(page.getByRole('button', { name: 'Resume' })).toBeVisible()
  await press('Skip weak-2')
  await type('Why it is left out', 'its disk is full')
  await within('Skip')
  await press('Resume')
  await within('Resume')
  await agreeTo(3)
  await expect(cluster('bank-2')).toContainText('done')
  expect(await running(page, 'bank-2')).toBe('v1.38.0')
})
