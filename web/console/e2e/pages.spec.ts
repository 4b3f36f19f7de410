import type { Page } from '@playwright/test'
import { accessible, clusterOf, expect, login, picture, tabTo, test } from './fixtures'

test.beforeAll(({ director }) => director.settle())

const pages = [
  '/',
  '/clusters',
  '/clusters/small',
  '/clusters/small/nodes',
  '/clusters/small/plans',
  '/clusters/small/document',
  '/clusters/small/certificates',
  '/clusters/small/backups',
  '/clusters/small/access',
  '/clusters/small/maintenance',
  '/clusters/small/nodes/small-master-1/shell',
  '/clusters/new',
  '/nodes',
  '/plans',
  '/campaigns',
  '/campaigns/new',
  '/infrastructure/capacity',
  '/infrastructure/fits',
  '/infrastructure/networks',
  '/infrastructure/images',
  '/infrastructure/releases',
  '/infrastructure/audit',
  '/infrastructure/disks',
  '/infrastructure/credentials',
  '/documents/Provider',
  '/documents/Network/net1',
  '/apply?template=Cluster',
  '/releases/import',
  '/images/import',
  '/backups',
  '/certificates',
  '/hooks',
  '/notifications',
  '/consul',
  '/schedules',
  '/activity',
  '/users',
  '/users/grants',
  '/users/projects',
  '/users/providers',
  '/settings',
  '/approve',
  '/nowhere',
]

for (const part of [0, 1]) {
  const some = pages.filter((_, i) => i % 2 === part)
  test(`every page is accessible, in each look, and fits into 320 pixels: ${part + 1} of 2`, async ({
    page,
    director,
  }) => {
    test.setTimeout(some.length * 60_000)
    await login(page, director)
    for (const path of some) await looksRight(page, path)
  })
}

test('so are the pages of a plan and its steps, of a node and of a campaign', async ({ page, director }) => {
  director.apply(clusterOf('seen', { labels: 'of: pages' }))
  const plan = JSON.parse(director.ctl('plan', 'seen', '-o', 'json')) as { id: string }
  director.ctl('start', plan.id, '--wait', '--yes')
  const campaign = JSON.parse(
    director.ctl(
      'campaign',
      'create',
      'seen',
      '--patch',
      '{"maintenance": {"window": 2}}',
      '-l',
      'of=pages',
      '-o',
      'json',
    ),
  ) as { id: string }
  const paths = [
    ...['summary', 'nodes', 'timeline', 'steps', 'documents', 'events'].map((tab) => `/plans/${plan.id}/${tab}`),
    `/plans/${plan.id}/steps/${encodeURIComponent('workers/seen-worker-1')}`,
    '/clusters/seen/nodes/seen-worker-1',
    '/clusters/seen/nodes/seen-worker-1/console',
    `/campaigns/${campaign.id}`,
  ]
  test.setTimeout((paths.length + 4) * 60_000)
  await login(page, director)
  for (const path of paths) await looksRight(page, path)
})

// looksRight opens a page in each look. What a page is made of does not depend on its colours: one visit has every rule
// once, and those of colours for each look.
async function looksRight(page: Page, path: string): Promise<void> {
  await test.step(path, async () => {
    const name = path.replaceAll(/\W+/g, '-')
    await page.goto(path)
    await expect(page.getByRole('heading', { level: 1 })).toBeVisible()
    await expect(page.locator('.loading')).toHaveCount(0)
    await expect(page.getByRole('alert')).toHaveCount(0)
    await picture(page, `light ${name}`)
    await accessible(page)
    await page.emulateMedia({ colorScheme: 'dark' })
    await picture(page, `dark ${name}`)
    await accessible(page, 'colours')
    await page.emulateMedia({ colorScheme: null, forcedColors: 'active' })
    await picture(page, `forced colours ${name}`)
    await accessible(page, 'colours')
    await page.emulateMedia({ forcedColors: null })
    await fitsIntoANarrowWindow(page, path, name)
  })
}

async function fitsIntoANarrowWindow(page: Page, path: string, name: string): Promise<void> {
  const size = page.viewportSize()
  await page.setViewportSize({ width: 320, height: 640 })
  // The page is loaded anew: what it measured when it began must not be the wide window.
  await page.goto(path)
  await expect(page.getByRole('heading', { level: 1 })).toBeVisible()
  await expect(page.locator('.loading')).toHaveCount(0)
  await picture(page, `narrow ${name}`)
  // The navigation may still be on its way out of the window.
  const wide = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
  await expect.poll(wide, { message: `${path} is wider than the window` }).toBeLessThanOrEqual(0)
  if (size) await page.setViewportSize(size)
}

// The manual is a site of its own. Each kind of page is in the list: the first one, tables, code, pictures and long
// generated ones.
const manual = ['', 'start/first-cluster', 'use/console', 'use/plans', 'reference/permissions', 'develop/architecture']

test('the manual is accessible in light and dark', async ({ page }) => {
  test.setTimeout((manual.length + 4) * 60_000)
  for (const path of manual) {
    await test.step(path, async () => {
      await page.goto(`/docs/${path}`)
      await expect(page.getByRole('heading', { level: 1 }).first()).toBeVisible()
      await accessible(page)
      await page.emulateMedia({ colorScheme: 'dark' })
      await expect(page.locator('html.dark')).toBeVisible()
      await picture(page, `dark manual ${path.replaceAll('/', '-')}`)
      await accessible(page, 'colours')
      await page.emulateMedia({ colorScheme: null })
    })
  }
})

test('the theme that a person has chosen outlives a reload', async ({ page, director }) => {
  const dark = page.locator('html.pf-v6-theme-dark')
  await login(page, director)
  await expect(dark).toHaveCount(0)
  await page.getByRole('button', { name: 'Dark theme' }).click()
  await expect(dark).toBeVisible()
  await page.reload()
  await expect(page.getByRole('button', { name: 'Light theme' })).toBeVisible()
  await expect(dark).toBeVisible()
  // It outlives what the machine says, too.
  await page.emulateMedia({ colorScheme: 'dark' })
  await page.getByRole('button', { name: 'Light theme' }).click()
  await expect(dark).toHaveCount(0)
  await page.reload()
  await expect(page.getByRole('button', { name: 'Dark theme' })).toBeVisible()
  await expect(dark).toHaveCount(0)
})

test('a change of a cluster says which plan would follow, before it is stored', async ({ page, director }) => {
  await login(page, director, '/apply?kind=Cluster&name=small')
  await page.getByLabel('Pool of workers worker').getByLabel('Workers', { exact: true }).fill('3')
  await expect(page.getByRole('heading', { name: 'The plan for small' })).toBeVisible()
  const effects = page.getByLabel('Effects')
  await expect(effects).toContainText('create 4 VMs')
  await expect(effects).toContainText('small-worker-3')
  await expect(page.getByRole('table', { name: 'What hosts would have left' })).toBeVisible()
  await picture(page, 'would-plan')
  await accessible(page)
  expect(director.ctl('get', 'cluster', 'small', '-o', 'yaml')).not.toContain('count: 3')
})

test('every template is a document that the director understands', async ({ page, director }) => {
  await login(page, director)
  for (const kind of ['Cluster', 'Project', 'Schedule']) {
    await test.step(kind, async () => {
      await page.goto(`/apply?template=${kind}`)
      await expect(page.getByRole('heading', { name: 'What would change' })).toBeVisible()
    })
  }
  // These name files, users and credentials that are not here, or a provider and a network that are
  // here and pretend. All that is wrong with them is that.
  for (const kind of ['Provider', 'Network', 'Release', 'Image', 'Grant', 'IdentityProvider']) {
    await test.step(kind, async () => {
      await page.goto(`/apply?template=${kind}`)
      const outcome = page
        .locator('.pf-v6-c-card, .pf-v6-c-alert')
        .filter({ hasText: /What would change|problems|cannot be read|do not fit|depends on/ })
      await expect(outcome).toBeVisible()
      await expect(outcome).not.toContainText(/not a field|is missing|is not allowed|cannot be read/)
    })
  }
})

test('users, tokens and sessions', async ({ page, director }) => {
  await login(page, director, '/users')
  await page.getByRole('button', { name: 'New user' }).click()
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill('ann')
  await page.getByLabel('Role').selectOption('operator')
  await page.getByRole('button', { name: 'Create' }).click()
  await expect(page.getByLabel('One-time password')).not.toHaveValue('')
  await expect(page.getByRole('row', { name: /ann/ })).toContainText('operator')
  await page.getByRole('row', { name: /ann/ }).getByRole('button').click()
  await page.getByRole('menuitem', { name: 'Disable' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Disable' }).click()
  await expect(page.getByRole('row', { name: /ann/ })).toContainText('disabled')

  await page.goto('/settings')
  await expect(page.getByRole('table', { name: 'Sessions' }).getByText('this one')).toBeVisible()
  await page.getByRole('button', { name: 'New token' }).click()
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill('backup-script')
  await page.getByLabel('Your password').fill(director.password)
  await page.getByRole('button', { name: 'Create' }).click()
  await expect(page.getByLabel('Token', { exact: true })).not.toHaveValue('')
  await expect(page.getByRole('table', { name: 'API tokens' })).toContainText('backup-script')

  await page.goto('/activity')
  await expect(page.getByRole('table', { name: 'Activity' })).toContainText('User/ann')
  await page.getByLabel('User or schedule').fill('nobody')
  await expect(page.getByText('Nothing like this has happened.')).toBeVisible()
  expect(page.url()).toContain('actor=nobody')
})

test('credentials are set, and never shown', async ({ page, director }) => {
  await login(page, director, '/infrastructure/credentials')
  await page.getByRole('button', { name: 'Set credentials' }).click()
  await page.getByLabel('Name, as the document has it').fill('vcenter')
  await page.locator('#credentials-user').fill('kaas@vsphere.local')
  await page.locator('#credentials-password').fill('a secret of vCenter')
  await page.getByRole('button', { name: 'Set', exact: true }).click()
  await expect(page.getByRole('row', { name: /vcenter/ })).toContainText('kaas@vsphere.local')
  expect(await page.content()).not.toContain('a secret of vCenter')
  await page
    .getByRole('row', { name: /vcenter/ })
    .getByRole('button')
    .click()
  await page.getByRole('menuitem', { name: 'Delete' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
  await expect(page.getByText('There are no credentials.')).toBeVisible()
})

test('by keyboard alone: log in, go to a cluster, plan and start', async ({ page, director }) => {
  await page.goto('/')
  await expect(page.getByLabel('User')).toBeFocused()
  await page.keyboard.type('admin')
  await page.keyboard.press('Tab')
  await page.keyboard.type(director.password)
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { name: 'Inbox' })).toBeVisible()
  await page.keyboard.press('Control+k')
  await expect(page.getByLabel('Page, or name of anything')).toBeFocused()
  await page.keyboard.type('small')
  await expect(page.getByRole('menuitem', { name: /small/ })).toBeVisible()
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { name: 'small' })).toBeVisible()
  await tabTo(page, 'Plan')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('dialog')).toContainText('steps')
  await tabTo(page, 'Make the plan')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { name: 'Agree to it' })).toBeVisible()
  await tabTo(page, 'Start')
  await page.keyboard.press('Enter')
  await expect(page.locator('[data-status=done]').first()).toBeVisible({ timeout: 180_000 })
})
