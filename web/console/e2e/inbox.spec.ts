// The inbox of a director that wants two people for what destroys something.
import { accessible, blockStorage, expect, login, picture, test as base } from './fixtures'
import { Director } from './director'

const notice = 'Try <b>anything</b> here.\nEach night, all of it is deleted.'

const test = base.extend<object, { director: Director }>({
  director: [
    async ({}, use) => {
      const director = new Director()
      await director.start(`approval: other\nnotice: |\n  ${notice.replaceAll('\n', '\n  ')}\n`)
      await use(director)
      await director.stop()
    },
    { scope: 'worker' },
  ],
})

test.beforeAll(({ director }) => {
  director.settle()
  director.apply(`apiVersion: kaas/v1
kind: Schedule
metadata: {name: nightly}
spec: {cron: "@yearly", job: {name: etcd-backup, params: {cluster: doomed}}}
---
apiVersion: kaas/v1
kind: Provider
metadata: {name: dark}
spec:
  type: sim
  sim: {hosts: [{name: d1}], verbs: [{verb: capacity, faults: 100}]}
`)
  // No backup can be made of a cluster that is not there.
  expect(() => director.ctl('schedules', 'run', 'nightly', '--wait')).toThrow('doomed')
  const made = JSON.parse(director.ctl('plan', 'small', '-o', 'json')) as { id: string }
  director.ctl('start', made.id, '--wait', '--yes')
  director.ctl(
    'campaign',
    'create',
    'other passwords',
    '--cluster',
    'small',
    '--operation',
    'cluster.rotate_pull_password',
  )
  director.ctl('plan', 'doomed')
})

test('what is ill, and where it is mended', async ({ page, director }) => {
  await login(page, director)
  const ill = page.getByRole('table', { name: 'What is ill' })
  await expect(ill.getByRole('row', { name: /Provider dark/ })).toBeVisible()
  await expect(ill.getByRole('row', { name: /Schedule nightly/ })).toContainText('doomed is not installed')
  await expect(page.getByLabel('Counts')).toContainText('3 clusters')
  await accessible(page)
  await picture(page, 'inbox-ill')
  await ill
    .getByRole('row', { name: /Provider dark/ })
    .getByRole('link')
    .click()
  await expect(page).toHaveURL(/infrastructure\/capacity/)
})

test('the notice of the configuration is plain text, and is dismissed once', async ({ page, director }) => {
  await login(page, director)
  const shown = page.getByText(notice)
  await expect(shown).toBeVisible()
  expect(await shown.innerText()).toBe(notice)
  await picture(page, 'notice')
  await accessible(page)
  await page.getByRole('button', { name: 'Dismiss the notice' }).press('Enter')
  await expect(shown).toHaveCount(0)
  await page.reload()
  await expect(page.getByLabel('Counts')).toBeVisible()
  await expect(shown).toHaveCount(0)
  await page.goto('/settings')
  await expect(shown).toBeVisible() // it can be read again
  // Another text than the one that was dismissed is shown.
  await page.evaluate(() => localStorage.setItem('director.notice', 'Yesterday’s words.'))
  await page.goto('/')
  await expect(shown).toBeVisible()
})

test('a browser that stores nothing dismisses the notice until the page is loaded again', async ({
  page,
  director,
}) => {
  await blockStorage(page)
  await login(page, director)
  await page.getByRole('button', { name: 'Dismiss the notice' }).click()
  await page
    .getByRole('link', { name: /clusters?$/ })
    .first()
    .click()
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Clusters')
  await page.goBack()
  await expect(page.getByLabel('Counts')).toBeVisible()
  await expect(page.getByText(notice)).toHaveCount(0)
  await page.reload()
  await expect(page.getByText(notice)).toBeVisible()
})

test('who has made a plan that destroys does not start it; another person does', async ({ page, director }) => {
  const bob = JSON.parse(director.ctl('users', 'create', 'bob', '--role', 'operator', '-o', 'json')) as {
    password: string
  }
  await login(page, director)
  await expect(page.getByRole('table', { name: 'Campaigns that wait' })).toContainText('Wave 1 waits for agreement.')
  await page.goto('/clusters/small')
  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  await page.getByRole('button', { name: 'Make the plan' }).click()
  await expect(page.getByText('Another person has to agree')).toBeVisible()
  await page.goto('/')
  const mine = page.getByRole('table', { name: 'Plans that wait', exact: true })
  const doomed = mine.getByRole('row', { name: /doomed/ })
  await expect(doomed.getByText(/waits? to be started/)).toHaveCount(1) // said once
  await expect(mine.getByRole('row', { name: /small/ })).toHaveCount(0)
  const others = page.getByRole('table', { name: 'Plans that wait for others' })
  await others.getByRole('row', { name: /small/ }).getByRole('link').first().click()
  const agree = page.getByLabel('Agree to the plan')
  await expect(agree).toContainText('Another person has to agree')
  await expect(page.getByRole('button', { name: 'Start' })).toHaveCount(0)
  await accessible(page)
  await picture(page, 'another-agrees')
  const plan = page.url()

  await page.context().clearCookies()
  await page.goto('/')
  await page.getByLabel('User').fill('bob')
  await page.getByLabel('Password').fill(bob.password)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.getByLabel('Current password').fill(bob.password)
  await page.locator('#password-new').fill(director.password)
  await page.getByLabel('New password again').fill(director.password)
  await page.getByRole('button', { name: 'Go on' }).click()
  await expect(mine.getByRole('row', { name: /small/ })).toBeVisible()
  await expect(page.getByRole('table', { name: 'Plans that wait for others' })).toHaveCount(0)
  await page.goto(plan)
  await expect(agree.getByRole('checkbox').first()).toBeVisible()
  for (const box of await agree.getByRole('checkbox').all()) await box.check()
  await agree.getByRole('button', { name: 'Agree and start' }).click()
  await expect(page.locator('[data-status=done]').first()).toBeVisible({ timeout: 180_000 })
})
