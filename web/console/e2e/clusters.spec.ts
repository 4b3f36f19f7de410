// The list of clusters, how one is, a newer version, and the palette.
import { accessible, expect, login, picture, test } from './fixtures'

test.beforeAll(({ director }) => {
  director.settle()
  director.apply(`apiVersion: kaas/v1
kind: Release
metadata: {name: k8s-1.38}
spec: {bundle: /nowhere/k8s-1.38, kubernetes: v1.38.0}
---
apiVersion: kaas/v1
kind: Release
metadata: {name: k8s-1.39}
spec: {bundle: /nowhere/k8s-1.39, kubernetes: v1.39.0}
`)
  const made = JSON.parse(director.ctl('plan', 'small', '-o', 'json')) as { id: string }
  director.ctl('start', made.id, '--wait', '--yes')
  director.ctl('node', 'list', 'small') // a look at the cluster is kept
  director.ctl('plan', 'doomed')
})

test('clusters are searched, sorted, counted and filtered', async ({ page, director }) => {
  await login(page, director, '/clusters')
  const names = page.getByRole('table', { name: 'Clusters' }).locator('tbody tr td:first-child')
  const counts = page.getByLabel('Counts')
  await expect(counts).toContainText('3 clusters, 2 absent, 1 ready, 1 running v1.37.1')
  await expect(names).toHaveText(['broken', 'doomed', 'small'])
  await accessible(page)
  await picture(page, 'clusters')

  await page.getByLabel('Order').selectOption('-version')
  await expect(names).toHaveText(['small', 'broken', 'doomed'])
  await page.getByLabel('Order').selectOption('-nodes')
  await expect(names).toHaveText(['small', 'broken', 'doomed'])
  expect(page.url()).toContain('sort=-nodes')

  await counts.getByRole('link', { name: '2 absent' }).click()
  await expect(names).toHaveText(['broken', 'doomed'])
  await expect(counts).toContainText('2 clusters, 2 absent')
  expect(page.url()).toContain('status=absent')
  await page.getByLabel('Name, project').fill('OOM')
  await expect(names).toHaveText(['doomed'])
  await page.getByLabel('Name, project').fill('')
  await page.getByLabel('Status').selectOption('')
  await page.getByLabel('Version').fill('v1.37')
  await expect(names).toHaveText(['small'])
  await page.reload()
  await expect(names).toHaveText(['small'])
})

test('a newer version leads to the upgrade', async ({ page, director }) => {
  await login(page, director, '/clusters')
  const row = page.getByRole('table', { name: 'Clusters' }).getByRole('row', { name: /small/ })
  await expect(row.getByRole('link', { name: 'v1.38.0 is available' })).toBeVisible()
  await page.goto('/clusters/small')
  await page.getByRole('link', { name: 'v1.38.0 is available' }).click()
  await expect(page.getByLabel('Names', { exact: true })).toHaveValue('small')
  await page.getByRole('button', { name: 'See what' }).click()
  const table = page.getByRole('table', { name: 'Clusters of the campaign' })
  // The release is not imported here: that is what the upgrade would be refused for.
  await expect(table.getByRole('row', { name: /small/ })).toContainText('k8s-1.38')
})

test('the overview says how a cluster is and what it waits for', async ({ page, director }) => {
  await login(page, director, '/clusters/small')
  const health = page.locator('section.pf-v6-c-card').filter({ has: page.getByRole('heading', { name: 'Health' }) })
  await expect(health.locator('[data-status=good]')).toBeVisible()
  await expect(health).toContainText('3 ready')
  await expect(health).toContainText('v1.37.1: 3')
  await expect(health).toContainText('small-master-1')
  await accessible(page)
  await picture(page, 'overview')
  await health.getByRole('link', { name: '3 ready' }).click()
  await expect(page.getByRole('table', { name: 'Nodes of all clusters' }).getByRole('row')).toHaveCount(4)

  await page.goto('/clusters/doomed')
  await expect(page.getByText('What it waits for')).toBeVisible()
  await expect(page.getByText(/it waits to be started/)).toBeVisible()
  await accessible(page)
})

test('the palette finds everything that has a name', async ({ page, director }) => {
  await login(page, director)
  const find = async (word: string, kind: RegExp) => {
    await page.keyboard.press('Control+k')
    await page.getByLabel('Page, or name of anything').fill(word)
    await expect(page.getByRole('menuitem', { name: kind }).first()).toBeVisible()
  }
  await find('mall-worker-1', /small-worker-1.*node of small, ready/)
  await accessible(page)
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('small-worker-1')
  await find('et1', /net1.*Network/)
  await page.getByRole('menuitem', { name: /net1/ }).click()
  await expect(page).toHaveURL(/documents\/Network\/net1/)
  await find('debian12', /debian12-k8s-1.37.*Image/)
  await page.keyboard.press('Escape')
  await find('admin', /admin.*user, admin/)
})
