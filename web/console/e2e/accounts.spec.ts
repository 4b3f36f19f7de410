// People and programs, what they did, what is done at certain times, and what the director says of itself.
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import type { Page } from '@playwright/test'
import { accessible, entry, expect, login, picture, test } from './fixtures'

test.beforeAll(({ director }) => director.settle())

const users = (page: Page) => page.getByRole('table', { name: 'Users' })

async function verb(page: Page, user: string, name: string) {
  await users(page)
    .getByRole('row', { name: new RegExp(`^${user}`) })
    .getByRole('button', { name: /toggle/ })
    .click()
  await page.getByRole('menuitem', { name: entry(name) }).click()
}

test('a program gets tokens, which are shown once, and loses them', async ({ page, director }) => {
  await login(page, director, '/users')
  await page.getByRole('button', { name: 'New user' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Name').fill('report')
  await dialog.getByLabel('A program, not a person').check()
  await dialog.getByRole('button', { name: 'Create' }).click()
  await verb(page, 'report', 'API tokens')
  await expect(dialog).toContainText('report has no API token.')
  await dialog.getByLabel('Name').fill('nightly')
  await dialog.getByRole('button', { name: 'Create a token' }).click()
  const token = await dialog.getByRole('textbox', { name: 'Token', exact: true }).inputValue()
  await accessible(page)
  await picture(page, 'user-tokens')
  const me = () =>
    execFileSync('curl', ['-sk', '-o', '/dev/null', '-w', '%{http_code}', '-H', '@-', `${director.url}/api/v1/me`], {
      encoding: 'utf8',
      input: `Authorization: Bearer ${token}\n`,
    })
  expect(me()).toBe('200')
  await dialog.getByRole('button', { name: 'Close' }).click()
  await verb(page, 'report', 'API tokens')
  await expect(dialog.getByRole('table')).toContainText('nightly')
  await expect(dialog.getByRole('textbox', { name: 'Token', exact: true })).toHaveCount(0)
  await dialog.getByRole('button', { name: 'Revoke nightly' }).click()
  await expect(dialog).toContainText('report has no API token.')
  expect(me()).toBe('401')
})

test('a person gets another role, is disabled and enabled, and goes; sessions end', async ({
  page,
  director,
  browser,
}) => {
  await login(page, director, '/users')
  await page.getByRole('button', { name: 'New user' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Name').fill('ann')
  await dialog.getByRole('button', { name: 'Create' }).click()
  const issued = page.getByRole('textbox', { name: 'One-time password' })
  const password = await issued.inputValue()
  const row = users(page).getByRole('row', { name: /^ann/ })

  const other = await browser.newContext({ ignoreHTTPSErrors: true, baseURL: director.url })
  const hers = await other.newPage()
  await hers.goto('/')
  await hers.getByLabel('User').fill('ann')
  await hers.getByLabel('Password').fill(password)
  await hers.getByRole('button', { name: 'Log in' }).click()
  await expect(hers.getByLabel('New password').first()).toBeVisible()

  await verb(page, 'ann', 'Sessions')
  await expect(dialog.getByRole('table')).toContainText('a browser')
  await accessible(page)
  await dialog.getByRole('button', { name: 'End', exact: true }).click()
  await expect(dialog).toContainText('ann has no session.')
  await dialog.getByRole('button', { name: 'Close' }).click()
  await other.close()

  await verb(page, 'ann', 'Change the role')
  await dialog.getByLabel('Role').selectOption('operator')
  await dialog.getByRole('button', { name: 'Change' }).click()
  await expect(row).toContainText('operator')
  await verb(page, 'ann', 'Give a one-time password')
  await dialog.getByRole('button', { name: 'Give' }).click()
  await expect(issued).not.toHaveValue(password)
  await verb(page, 'ann', 'Disable')
  await dialog.getByRole('button', { name: 'Disable' }).click()
  await expect(row).toContainText('disabled')
  await verb(page, 'ann', 'Enable')
  await dialog.getByRole('button', { name: 'Enable' }).click()
  await expect(row).not.toContainText('disabled')
  await verb(page, 'ann', 'Delete')
  await dialog.getByRole('button', { name: 'Delete', exact: true }).click()
  await expect(row).toHaveCount(0)
})

test('a dialog shows the command that does the same', async ({ page, director }) => {
  director.ctl('users', 'create', 'bob')
  await login(page, director, '/users')
  const dialog = page.getByRole('dialog')
  const run = async () => {
    const command = await dialog.getByLabel('The same with directorctl').inputValue()
    const [program, ...args] = command.split(' ')
    expect(program).toBe('directorctl')
    director.ctl(...args)
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    await page.reload()
  }
  const row = users(page).getByRole('row', { name: /^bob/ })
  await verb(page, 'bob', 'Change the role')
  await dialog.getByLabel('Role').selectOption('auditor')
  await run()
  await expect(row).toContainText('auditor')
  await verb(page, 'bob', 'Disable')
  await run()
  await expect(row).toContainText('disabled')
  await verb(page, 'bob', 'Delete')
  await expect(dialog.getByLabel('The same with directorctl')).toHaveValue('directorctl users delete bob')
})

test('the activity is narrowed, verified and exported', async ({ page, director }) => {
  await login(page, director, '/activity')
  const table = page.getByRole('table', { name: 'Activity' })
  await expect(table).toContainText('User/ann')
  await page.getByRole('textbox', { name: 'Cluster' }).fill('small')
  await expect(page.getByText('User/ann')).toHaveCount(0)
  await page.goto('/activity?from=2020-01-01T00:00&until=2020-01-02T00:00')
  await expect(page.getByText('Nothing like this has happened.')).toBeVisible()
  await page.getByLabel('Until', { exact: true }).fill('2099-01-01T00:00')
  await expect(table).toContainText('User/ann')
  await page.getByRole('button', { name: 'Verify the trail' }).click()
  await expect(page.getByText(/The trail is as it was written/)).toBeVisible()
  await accessible(page)
  await picture(page, 'activity')
  const download = page.waitForEvent('download')
  await page.getByRole('link', { name: 'Export' }).click()
  expect((await download).suggestedFilename()).toBe('audit.jsonl')
})

test('a schedule runs now, is suspended and resumed, and shows its runs', async ({ page, director }) => {
  await login(page, director, '/schedules')
  const row = page.getByRole('row', { name: /^drift/ })
  const act = async (name: string) => {
    await row.getByRole('button', { name: /toggle/ }).click()
    await page.getByRole('menuitem', { name: entry(name) }).click()
  }
  await act('Run now')
  await expect(row).toContainText('done')
  await act('Suspend')
  await expect(row).toContainText('suspended')
  await act('Resume')
  await expect(row).not.toContainText('suspended')
  await page.getByRole('button', { name: 'Runs of drift' }).click()
  const runs = page.getByRole('dialog').getByRole('table', { name: 'Runs of drift' })
  await expect(runs).toContainText('admin')
  await expect(runs).toContainText('done')
  await accessible(page)
  await picture(page, 'schedule-runs')
})

test('what has not changed is not sent again', async ({ page, director }) => {
  await login(page, director, '/schedules')
  const row = page.getByRole('row', { name: /^drift/ })
  await expect(row).toBeVisible()
  // The page asks again every 15 seconds.
  await page.waitForResponse((r) => r.url().endsWith('/api/v1/schedules') && r.status() === 304)
  await expect(row).toBeVisible()
  await expect(page.getByRole('alert')).toHaveCount(0)
})

test('the settings say what the director is', async ({ page, director }) => {
  await login(page, director, '/settings')
  await expect(page.getByText('on; 2 may be open at once')).toBeVisible()
  await expect(page.getByText(/agree to what a plan destroys|needs no agreement|Another person/)).toBeVisible()
  await expect(page.getByRole('list', { name: 'Health' }).getByRole('listitem').first()).toContainText('ok')
})

test('an identity provider is tested', async ({ page, director }) => {
  const file = join(director.dir, 'password')
  director.ctl('provider', 'credentials', 'set', 'people', '--user', 'cn=director', '--password-file', file)
  director.apply(`apiVersion: kaas/v1
kind: IdentityProvider
metadata: {name: corp}
spec:
  type: ldap
  servers: ["ldaps://127.0.0.1:1"]
  credentials: people
  userBase: ou=people,dc=example,dc=org
  roles: [{group: "cn=admins,ou=groups,dc=example,dc=org", role: admin}]
`)
  await login(page, director, '/users/providers')
  await page.getByRole('button', { name: 'Test corp' }).click()
  await expect(page.getByText('Something is wrong.')).toBeVisible()
  await expect(page.getByRole('listitem').filter({ hasText: 'connect' })).toBeVisible()
  await accessible(page)
})
