// Flow 5: choose clusters and what they get, see both before anything is made, and make the campaign.
import { accessible, clusterOf, expect, login, picture, tabTo, test } from './fixtures'

const clusters = ['shop-1', 'shop-2', 'shop-3', 'shop-4']
const frail = ['frail-1', 'frail-2', 'frail-3'] // their nodes do not take another password

test.beforeAll(({ director }) => {
  director.settle()
  director.apply(
    [...clusters, ...frail].map((name) => clusterOf(name, { labels: `stage: ${name.split('-')[0]}` })).join(''),
  )
  for (const name of [...clusters.slice(0, 3), ...frail]) {
    const made = JSON.parse(director.ctl('plan', name, '-o', 'json')) as { id: string }
    director.ctl('start', made.id, '--wait', '--yes')
  }
})

test('a campaign, by mouse', async ({ page, director }) => {
  await login(page, director, '/campaigns')
  await page.getByRole('link', { name: 'New campaign' }).click()
  await expect(page.getByText('It cannot be made yet.')).toBeVisible()
  await accessible(page)
  await page.getByLabel('What it is for').fill('longer pulls')
  await page.getByLabel('Labels').fill('stage=shop')
  await expect(page.getByRole('status').filter({ hasText: '4 clusters' })).toBeVisible()
  await page.getByLabel('A change of its document').check()
  await page.getByLabel('Merge patch of spec, as JSON').fill('{"workers": ')
  await expect(page.getByText('This is no JSON object.')).toBeVisible()
  await page.getByLabel('Another password for pulling images').check()
  await page.getByLabel('Clusters of the first wave').fill('1')
  await page.getByLabel('Clusters of the other waves').fill('lots')
  await expect(page.getByText('"lots" is not a number of clusters').first()).toBeVisible()
  await accessible(page)
  await page.getByLabel('Clusters of the other waves').fill('2')
  await page.getByLabel('Start plans only in a window of time').check()
  await page.getByLabel('Hours that it stays open').fill('6')
  await expect(page.getByText('in 3 waves: 1, then 2, then 1')).toBeVisible()
  await expect(page.getByText('It cannot be made yet.')).toBeHidden()

  await page.getByRole('button', { name: 'See what these 4 clusters would get' }).click()
  const table = page.getByRole('table', { name: 'Clusters of the campaign' })
  await expect(table.getByRole('row', { name: /shop-4/ })).toContainText('cluster shop-4 does not exist yet')
  await expect(table.getByRole('row', { name: /shop-1/ })).toContainText('password')
  await expect(page.getByLabel('The same with directorctl')).toHaveValue(
    "directorctl campaign create 'longer pulls' --operation cluster.rotate_pull_password --selector stage=shop " +
      "--canary 1 --wave 2 --window '0 22 * * 1-5' --window-for 6h --wait",
  )
  await picture(page, 'campaign-new')
  await accessible(page)
  await page.setViewportSize({ width: 320, height: 700 })
  await accessible(page)
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320)
  await picture(page, 'campaign-new-320')
  await page.setViewportSize({ width: 1280, height: 800 })

  await page.reload() // what was filled in is in the address
  await expect(page.getByLabel('What it is for')).toHaveValue('longer pulls')
  await expect(page.getByText('in 3 waves: 1, then 2, then 1')).toBeVisible()
  await page.getByLabel('Names').fill('shop-1, shop-2, shop-3, nowhere')
  await expect(page.getByText(/there is no cluster nowhere/).first()).toBeVisible()
  await expect(page.getByRole('button', { name: 'Make the campaign' })).toBeDisabled()
  await page.getByLabel('Names').fill('shop-3 shop-1')
  await page.getByLabel('Start plans only in a window of time').uncheck()
  await page.getByRole('button', { name: 'Make the campaign' }).click()
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('longer pulls')
  await expect(page.getByRole('button', { name: 'Agree to wave 1' })).toBeVisible()
  await picture(page, 'campaign')
  await accessible(page)
  director.ctl('campaign', 'end', page.url().split('/').pop() ?? '', '--reason', 'seen')
})

test('a campaign, by keyboard alone', async ({ page, director }) => {
  await login(page, director, '/campaigns')
  await tabTo(page, 'New campaign')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('New campaign')
  const focus = async (label: string) => {
    for (let i = 0; i < 60; i++) {
      if (await page.getByLabel(label, { exact: true }).evaluate((e) => e === document.activeElement)) return
      await page.keyboard.press('Tab')
    }
    throw new Error(`the Tab key does not come to ${label}`)
  }
  await focus('What it is for')
  await page.keyboard.type('pulls')
  await page.keyboard.press('Tab')
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('ArrowDown')
  await expect(page.getByLabel('Another password for pulling images')).toBeChecked()
  await focus('Labels')
  await page.keyboard.type('stage=shop')
  await focus('Names')
  await page.keyboard.type('shop-2')
  await expect(page.getByRole('status').filter({ hasText: '1 cluster in 1 wave' })).toBeVisible()
  await tabTo(page, 'See what this cluster would get')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('table', { name: 'Clusters of the campaign' })).toContainText('password')
  await tabTo(page, 'Make the campaign')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('pulls')
  await tabTo(page, 'Agree to wave 1')
  await page.keyboard.press('Enter')
  await page.getByRole('dialog').getByRole('button', { name: 'Agree' }).focus()
  await page.keyboard.press('Enter')
  await expect(page.getByRole('table', { name: 'Waves' })).toContainText('1 done')
})

test('a campaign is paused, stops at a failure, leaves a cluster out, and ends', async ({ page, director }) => {
  const made = JSON.parse(
    director.ctl(
      ...['campaign', 'create', 'trial', '--operation', 'cluster.rotate_pull_password', '--selector', 'stage=frail'],
      ...['--canary', '1', '--wave', '1', '-o', 'json'],
    ),
  ) as { id: string }
  await login(page, director, `/campaigns/${made.id}`)
  const dialog = page.getByRole('dialog')
  const of = (name: string) =>
    page.getByRole('table', { name: 'Clusters', exact: true }).getByRole('row', { name: new RegExp(name) })
  await page.getByRole('button', { name: 'Pause' }).click()
  await dialog.getByRole('textbox', { name: 'Why, for those who wonder' }).fill('lunch')
  await dialog.getByRole('button', { name: 'Pause' }).click()
  await expect(page.getByText('lunch')).toBeVisible()
  await expect(page.getByRole('button', { name: 'Pause' })).toHaveCount(0)
  await page.getByRole('button', { name: 'Resume' }).click()
  await dialog.getByRole('button', { name: 'Resume' }).click()

  await page.getByRole('button', { name: 'Agree to wave 1' }).click()
  await dialog.getByRole('button', { name: 'Agree' }).click()
  await expect(of('frail-1')).toContainText('failed')
  await expect(page.getByRole('button', { name: 'Resume' })).toBeVisible() // one failure is more than none
  await expect(of('frail-2')).toContainText('planned')
  await accessible(page)
  await picture(page, 'campaign-failed')

  await of('frail-1').getByRole('button', { name: 'Skip frail-1' }).click()
  await expect(dialog.getByRole('button', { name: 'Skip' })).toBeDisabled()
  await dialog.getByRole('textbox', { name: 'Why it is left out' }).fill('its network is being mended')
  await dialog.getByRole('button', { name: 'Skip' }).click()
  await expect(of('frail-1')).toContainText('its network is being mended (admin)')
  await page.getByRole('button', { name: 'Resume' }).click()
  await dialog.getByRole('button', { name: 'Resume' }).click()
  await expect(page.getByRole('button', { name: 'Agree to wave 2' })).toBeVisible()
  await page.getByRole('button', { name: 'End' }).click()
  await dialog.getByRole('textbox', { name: 'Why, for those who wonder' }).fill('seen enough')
  await dialog.getByRole('button', { name: 'End' }).click()
  await expect(page.getByText('seen enough')).toBeVisible()
  await expect(page.getByRole('button', { name: /Agree|Resume|Pause|Skip/ })).toHaveCount(0)
})
